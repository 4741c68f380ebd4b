// Devices as small squares, and the state of nodes and devices as words.
import { CircleAlert, CircleCheck, CirclePause } from "lucide";
import type { DeviceRow, NodeRow } from "../api/types";
import { Badge } from "../design/badge";
import { percent } from "../format";
import { pathTo } from "../router";
import { t, type Text } from "../texts";
import { promisedOf } from "./use";

// fragment is promised in part.
export const STATES = ["free", "fragment", "full", "closed", "bad"] as const;
export type State = (typeof STATES)[number];

export function stateOf(device: DeviceRow): State {
  if (device.health !== "Healthy") return "bad";
  if (!device.takesWork) return "closed";
  const promised = promisedOf(device);
  return promised === 0 ? "free" : promised < 1 ? "fragment" : "full";
}

export const stateName = (state: State): string => t(`tile_${state}` as Text);

const TONES = { free: "good", fragment: "warn", full: "info", closed: "plain", bad: "bad" } as const;
const ICONS = { free: CircleCheck, fragment: CircleCheck, full: CircleCheck, closed: CirclePause, bad: CircleAlert };

export function DeviceBadge({ device }: { device: DeviceRow }) {
  const state = stateOf(device);
  return (
    <Badge tone={TONES[state]} icon={ICONS[state]}>
      {stateName(state)}
    </Badge>
  );
}

export const NodeBadge = ({ node }: { node: NodeRow }) =>
  node.takesWork ? (
    <Badge tone="good" icon={CircleCheck}>{t("nodeReady")}</Badge>
  ) : (
    <Badge tone="warn" icon={CirclePause}>{t("tile_closed")}</Badge>
  );

// Each device filled by what is promised of it; the map has its tenants.
export const DeviceSquares = ({ node }: { node: NodeRow }) => (
  <a class="squares" href={`${pathTo("map")}?search=${encodeURIComponent(node.name)}`} aria-label={t("devicesOf", node.name, node.devices.length)}>
    {node.devices.map((device) => (
      <span key={device.uuid} class={`square square-${stateOf(device)}`} title={`${device.index}: ${stateName(stateOf(device))}, ${percent(promisedOf(device))}`}>
        <span style={{ height: `${100 * promisedOf(device)}%` }} />
      </span>
    ))}
  </a>
);
