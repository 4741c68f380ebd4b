// Map: every device as a tile, filled by what is promised of it.
import type { DeviceRow, NodeRow } from "../api/types";
import { age, gib, percent } from "../format";
import { nodes } from "../live/store";
import { Command, Field } from "../parts/basics";
import { place, setQuery } from "../router";
import { t } from "../texts";

const GROUPS = ["node", "model", "pool"] as const;
const MOST_TILES = 2000;

interface Tile {
  node: NodeRow;
  device: DeviceRow;
}

const promised = ({ device }: Tile): number =>
  (device.tenants.reduce((sum, each) => sum + each.shareMilli, 0) + (device.others?.shareMilli ?? 0)) / 1000;

export function MapPage() {
  const by = GROUPS.find((each) => each === place.value.query.get("by")) ?? "node";
  const tiles = nodes.value.flatMap((node) => node.devices.map((device): Tile => ({ node, device }))).slice(0, MOST_TILES);
  const groups = Map.groupBy(tiles, ({ node, device }) => (by === "node" ? node.name : by === "model" ? device.model : node.pool || t("none")));
  return (
    <>
      <h1>{t("map")}</h1>
      <p>{t("mapHow")}</p>
      <Field label={t("groupBy")}>
        <select value={by} onChange={(event) => setQuery({ by: event.currentTarget.value })}>
          {GROUPS.map((each) => (
            <option key={each} value={each}>{t(each)}</option>
          ))}
        </select>
      </Field>
      {[...groups].map(([name, list]) => (
        <section key={name}>
          <h2>{name}</h2>
          <ul class="tiles">{list.map((tile) => <TileView key={tile.node.name + tile.device.index} tile={tile} />)}</ul>
        </section>
      ))}
      <Command lines={["ginfo"]} />
    </>
  );
}

function stateOf({ node, device }: Tile): string {
  if (device.health !== "Healthy") return t("unhealthy");
  if (device.cordoned || !node.takesWork) return t("cordoned");
  const share = promised({ node, device });
  return share === 0 ? t("freeWord") : share < 1 ? t("fragment") : percent(share);
}

function TileView({ tile }: { tile: Tile }) {
  const { node, device } = tile;
  const share = promised(tile);
  const tenants = device.tenants.map((each) => `${each.namespace}/${each.pod}: ${each.shareMilli / 1000}`);
  if (device.others) tenants.push(`${t("anotherTenant")}: ${device.others.shareMilli / 1000}`);
  const bad = device.health !== "Healthy" || device.cordoned || !node.takesWork;
  return (
    <li class={`tile${bad ? " bad" : share > 0 && share < 1 ? " part" : ""}`}>
      <details>
        <summary>
          {node.name}:{device.index} <small>{stateOf(tile)}</small>
          <svg class="meter wide" aria-hidden="true" viewBox="0 0 100 10" preserveAspectRatio="none">
            <rect class="meter-whole" width="100" height="10" />
            <rect class="meter-part" width={Math.min(100, share * 100)} height="10" />
          </svg>
        </summary>
        <p>
          {device.model}, {t("memoryUsed", gib(device.usedMiB), gib(device.memoryMiB))}, {t("load")} {percent(device.utilization)},{" "}
          {t("asOf", age(node.observedAt))} {device.healthReason}
        </p>
        <ul>{tenants.map((text) => <li key={text}>{text}</li>)}</ul>
      </details>
    </li>
  );
}
