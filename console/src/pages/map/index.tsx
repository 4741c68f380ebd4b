// Map: every device as a tile, filled by what is promised of it, with its fractions, memory and health.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { DeviceRow } from "../../api/types";
import { age, gib, percent } from "../../format";
import { nodes } from "../../live/store";
import { Command, Field, Meter, Section } from "../../parts/basics";
import { VirtualList } from "../../parts/virtual_list";
import { pathTo, place, setQuery } from "../../router";
import { t, type Text } from "../../texts";
import { GROUPS, type Line, linesOf, nameOf, STATES, type State, type Tile, tilesOf } from "./tiles";

const HEAD = 30;
const LINE = 50;
const TILE = 118;

const stateName = (state: State): string => t(`tile_${state}` as Text);

export function MapPage() {
  const across = useSignal(8);
  const { query } = place.value;
  const by = GROUPS.find((each) => each === query.get("by")) ?? "node";
  const wanted = STATES.find((each) => each === query.get("state"));
  const search = (query.get("search") ?? "").toLowerCase();
  const all = useMemo(() => tilesOf(nodes.value), [nodes.value]);
  const shown = useMemo(
    () => all.filter((tile) => (!wanted || tile.state === wanted) && (!search || textOf(tile).includes(search))),
    [all, wanted, search],
  );
  const lines = useMemo(() => linesOf(shown, by, across.value), [shown, by, across.value]);
  return (
    <>
      <h1>{t("map")}</h1>
      <p>{t("mapHow")}</p>
      <div class="filters" role="search">
        <Field label={t("groupBy")}>
          <select value={by} onChange={(event) => setQuery({ by: event.currentTarget.value })}>
            {GROUPS.map((each) => (
              <option key={each} value={each}>{t(each)}</option>
            ))}
          </select>
        </Field>
        <Field label={t("search")}>
          <input type="search" value={query.get("search") ?? ""} onInput={(event) => setQuery({ search: event.currentTarget.value })} />
        </Field>
      </div>
      <Legend tiles={all} wanted={wanted} />
      <Chosen tile={all.find((tile) => nameOf(tile) === query.get("device"))} />
      {shown.length === 0 && <p>{t("mapNone")}</p>}
      <VirtualList
        label={t("map")}
        entries={lines}
        heightOf={(line) => (line.title ? HEAD : LINE)}
        keyOf={(line) => line.key}
        draw={drawn}
        onWidth={(width) => (across.value = Math.max(1, Math.floor((width - 16) / TILE)))}
      />
      <Command lines={["ginfo", "ginfo --by-job"]} />
    </>
  );
}

const textOf = ({ node, device }: Tile): string =>
  `${node.name} ${node.rack} ${node.pool} ${device.model} ${device.tenants.map((each) => `${each.namespace}/${each.pod}`).join(" ")}`.toLowerCase();

// What the patterns mean, with the number of devices of each; each shows only those.
function Legend({ tiles, wanted }: { tiles: readonly Tile[]; wanted: State | undefined }) {
  return (
    <div class="tabs" role="group" aria-label={t("state")}>
      {STATES.map((state) => (
        <button key={state} type="button" aria-pressed={wanted === state} onClick={() => setQuery({ state: wanted === state ? "" : state })}>
          <span class={`swatch tile-${state}`} aria-hidden="true" /> {stateName(state)}{" "}
          <span class="count">{tiles.filter((tile) => tile.state === state).length}</span>
        </button>
      ))}
    </div>
  );
}

function LineView({ line }: { line: Line }) {
  if (line.title) return <h2 class="line-title">{line.title}</h2>;
  return (
    <div class="tile-line">
      {line.tiles.map((tile) => (
        <TileView key={nameOf(tile)} tile={tile} />
      ))}
    </div>
  );
}

const drawn = (line: Line) => <LineView line={line} />;

// A device that cannot report has no figure of what is in use.
const memoryOf = (device: DeviceRow): string => (device.usedMiB === null ? gib(device.memoryMiB) : t("memoryUsed", gib(device.usedMiB), gib(device.memoryMiB)));

const said = (tile: Tile): string =>
  `${nameOf(tile)}: ${stateName(tile.state)}, ${t("promised")} ${percent(tile.promised)}, ${memoryOf(tile.device)}`;

// Each tenant's share is a part of the bar, the used memory a second, thinner one.
function TileView({ tile }: { tile: Tile }) {
  const { device } = tile;
  const shares = [...device.tenants.map((each) => each.shareMilli), ...(device.others ? [device.others.shareMilli] : [])];
  const name = nameOf(tile);
  return (
    <button type="button" class={`tile tile-${tile.state}`} aria-label={said(tile)} aria-pressed={place.value.query.get("device") === name} onClick={() => setQuery({ device: name })}>
      <span class="tile-name">{name}</span>
      <span class="shares">
        {shares.map((share, index) => (
          <span key={index} class={index >= device.tenants.length ? "share other" : "share"} style={{ width: `${share / 10}%` }} />
        ))}
      </span>
      <span class="shares memory">
        <span class="share" style={{ width: `${(100 * (device.usedMiB ?? 0)) / Math.max(1, device.memoryMiB)}%` }} />
      </span>
    </button>
  );
}

function Chosen({ tile }: { tile: Tile | undefined }) {
  if (!tile) return null;
  const { node, device } = tile;
  return (
    <Section title={nameOf(tile)}>
      <p role="status">
        {device.model}, {stateName(tile.state)}
        {device.message && `: ${device.message}`}, {memoryOf(device)}
        {device.utilization !== null && (
          <>
            , {t("load")} {percent(device.utilization)} <Meter part={device.utilization} label={percent(device.utilization)} />
          </>
        )}
        , {t("asOf", age(device.measuredAt ?? node.observedAt))}
      </p>
      <ul>
        {device.tenants.map((each) => (
          <li key={each.pod}>
            {each.namespace}/{each.pod}: {each.shareMilli / 1000}, {t("promised")} {gib(each.memoryMiB)}
            {each.usedMiB !== null && `, ${t("used")} ${gib(each.usedMiB)}`}{" "}
            {each.job !== null && <a href={`${pathTo("queue")}?state=all&namespace=${encodeURIComponent(each.namespace)}&jobs=${each.job}`}>{t("job")} {each.job}</a>}
          </li>
        ))}
        {device.others && (
          <li>
            {t("anotherTenant")}: {device.others.shareMilli / 1000}, {t("promised")} {gib(device.others.memoryMiB)}
          </li>
        )}
      </ul>
      <button type="button" onClick={() => setQuery({ device: "" })}>
        {t("close")}
      </button>
    </Section>
  );
}
