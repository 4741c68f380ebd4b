// Devices as tiles: their state, what is promised of them, and the lines of tiles that the map draws. Pure.
import type { DeviceRow, NodeRow } from "../../api/types";
import { byName } from "../../live/store";
import { t } from "../../texts";

export const STATES = ["free", "fragment", "full", "closed", "bad"] as const;
export type State = (typeof STATES)[number];
export const GROUPS = ["node", "rack", "model", "pool"] as const;
export type Group = (typeof GROUPS)[number];

export interface Tile {
  node: NodeRow;
  device: DeviceRow;
  state: State;
  // What is promised of it, from 0 to 1.
  promised: number;
}

export interface Line {
  key: string;
  // The heading of a group; empty for a line of tiles.
  title: string;
  tiles: readonly Tile[];
}

export const nameOf = ({ node, device }: Tile): string => `${node.name}:${device.index}`;

export function tilesOf(nodes: readonly NodeRow[]): Tile[] {
  return nodes.flatMap((node) =>
    node.devices.map((device) => {
      const milli = device.tenants.reduce((sum, each) => sum + each.shareMilli, device.others?.shareMilli ?? 0);
      return { node, device, promised: milli / 1000, state: stateOf(device, milli) };
    }),
  );
}

function stateOf(device: DeviceRow, milli: number): State {
  if (device.health !== "Healthy") return "bad";
  if (!device.takesWork) return "closed";
  return milli === 0 ? "free" : milli < 1000 ? "fragment" : "full";
}

const groupOf = ({ node, device }: Tile, by: Group): string =>
  (by === "node" ? node.name : by === "rack" ? node.rack : by === "model" ? device.model : node.pool) || t("none");

// Groups by name, each a heading and lines of `across` tiles; nodes have their name on the line itself.
export function linesOf(tiles: readonly Tile[], by: Group, across: number): Line[] {
  const groups = [...Map.groupBy(tiles, (tile) => groupOf(tile, by))].sort(([a], [b]) => byName(a, b));
  return groups.flatMap(([name, list]) => {
    const lines: Line[] = [{ key: name, title: `${name} (${list.length})`, tiles: [] }];
    for (let at = 0; at < list.length; at += across) lines.push({ key: `${name} ${at}`, title: "", tiles: list.slice(at, at + across) });
    return lines;
  });
}
