// What the values of a chart are, and how they are written.
import { duration, gpus, percent } from "../format";

export interface Unit {
  // The least top of the axis, and whether the axis always ends there.
  top: number;
  fixed?: boolean;
  text: (value: number) => string;
}

const SHARE: Unit = { top: 1, fixed: true, text: percent };
const GPUS: Unit = { top: 1, text: gpus };
const JOBS: Unit = { top: 4, text: gpus };
const SECONDS: Unit = { top: 60, text: duration };
const CELSIUS: Unit = { top: 60, text: (value) => `${Math.round(value)} °C` };
const WATTS: Unit = { top: 100, text: (value) => (value >= 10_000 ? `${Math.round(value / 100) / 10} kW` : `${Math.round(value)} W`) };

const HOURS: Unit = { top: 1, text: (value) => (value >= 100 ? String(Math.round(value)) : gpus(value)) };

export const UNITS = { share: SHARE, gpus: GPUS, hours: HOURS, jobs: JOBS, seconds: SECONDS, celsius: CELSIUS, watts: WATTS };
