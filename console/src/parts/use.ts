// What devices are promised and what they do, summed up in GPUs. Pure.
import type { DeviceRow } from "../api/types";

export interface Use {
  total: number;
  promised: number;
  // Of what is promised: at work, not at work, and without a measurement.
  used: number;
  idle: number;
  unknown: number;
  // Not promised: on devices that take work, and on those that do not.
  free: number;
  closed: number;
}

export const promisedOf = (device: DeviceRow): number =>
  Math.min(1, device.tenants.reduce((sum, each) => sum + each.shareMilli, device.others?.shareMilli ?? 0) / 1000);

export function useOf(devices: readonly DeviceRow[]): Use {
  const use = { total: devices.length, promised: 0, used: 0, idle: 0, unknown: 0, free: 0, closed: 0 };
  for (const device of devices) {
    const promised = promisedOf(device);
    use.promised += promised;
    if (device.utilization === null) use.unknown += promised;
    else {
      const used = Math.min(promised, device.utilization);
      use.used += used;
      use.idle += promised - used;
    }
    use[device.takesWork ? "free" : "closed"] += 1 - promised;
  }
  return use;
}
