// Map: every device as a tile, coloured by what is promised of it or by what it does, now or at a time of the past, with
// its tenants in a drawer.
import { SearchX } from "lucide";
import { useSignal } from "@preact/signals";
import { useCallback, useMemo } from "preact/hooks";
import type { DeviceRow } from "../../api/types";
import { type Fact, Facts } from "../../design/card";
import { Command } from "../../design/command";
import { Empty } from "../../design/empty";
import { Search, Select } from "../../design/field";
import { Dialog } from "../../design/overlay";
import { PageHead, Tabs } from "../../design/page";
import { age, gib, percent } from "../../format";
import { nodes } from "../../live/store";
import { English, NodeLink } from "../../parts/basics";
import { DeviceBadge, stateName, STATES } from "../../parts/devices";
import { VirtualList } from "../../parts/virtual_list";
import { pathTo, place, setQuery, withQuery } from "../../router";
import { t } from "../../texts";
import { MomentBar, useThen } from "./moment";
import { GROUPS, type Line, linesOf, nameOf, type Shade, SHADES, type Tile, tilesOf, tilesThen, valueOf } from "./tiles";

const HEAD = 38;
const LINE = 62;
const TILE = 120;
const STEPS = 5;

export function MapPage() {
  const across = useSignal(8);
  const { query } = place.value;
  const by = GROUPS.find((each) => each === query.get("by")) ?? "node";
  const shade = SHADES.find((each) => each === query.get("colour")) ?? "promised";
  const then = useThen();
  // The states are those of now.
  const wanted = then.at ? undefined : STATES.find((each) => each === query.get("state"));
  const search = (query.get("search") ?? "").toLowerCase();
  const current = useMemo(() => tilesOf(nodes.value), [nodes.value]);
  const all = useMemo(() => (then.found ? tilesThen(current, then.found) : current), [current, then.found]);
  const found = useMemo(() => all.filter((tile) => !search || textOf(tile).includes(search)), [all, search]);
  const shown = useMemo(() => found.filter((tile) => !wanted || tile.state === wanted), [found, wanted]);
  const lines = useMemo(() => linesOf(shown, by, across.value), [shown, by, across.value]);
  const past = Boolean(then.at);
  const draw = useCallback((line: Line) => <LineView line={line} shade={shade} past={past} />, [shade, past]);
  return (
    <>
      <PageHead title={t("map")} lead={t("mapHow")} />
      {!past && <Tabs
        label={t("state")}
        tabs={[
          { href: withQuery({ state: "" }), text: t("all"), count: found.length, current: !wanted },
          ...STATES.map((state) => ({ href: withQuery({ state }), text: stateName(state), count: found.filter((tile) => tile.state === state).length, current: wanted === state })),
        ]}
      />}
      <MomentBar then={then} shade={shade} />
      <div class="toolbar">
        <Search label={t("search")} value={query.get("search") ?? ""} onText={(text) => setQuery({ search: text })} />
        <div class="short">
          <Select label={t("groupBy")} value={by} choices={GROUPS.map((each) => [each, `${t("groupBy")}: ${t(each)}`])} onChoose={(value) => setQuery({ by: value })} />
        </div>
        <div class="short">
          <Select label={t("colourBy")} value={shade} choices={SHADES.map((each) => [each, `${t("colourBy")}: ${t(each)}`])} onChoose={(value) => setQuery({ colour: value })} />
        </div>
        <Scale shade={shade} />
      </div>
      <section class="card">
        {shown.length === 0 ? (
          <Empty icon={SearchX} title={t("mapNone")} />
        ) : (
          <VirtualList label={t("map")} entries={lines} heightOf={(line) => (line.title ? HEAD : LINE)} keyOf={(line) => line.key} draw={draw} onWidth={(width) => (across.value = Math.max(1, Math.floor((width - 24) / TILE)))} />
        )}
      </section>
      <Chosen tile={current.find((tile) => nameOf(tile) === query.get("device"))} />
      <Command lines={["ginfo", "ginfo --by-job"]} />
    </>
  );
}

const textOf = ({ node, device }: Tile): string =>
  `${node.name} ${node.rack} ${node.pool} ${device.model} ${device.tenants.map((each) => `${each.namespace}/${each.pod}`).join(" ")}`.toLowerCase();

// The colours from least to most.
const Scale = ({ shade }: { shade: Shade }) => (
  <span class="row note" role="img" aria-label={t("scale", t(shade))}>
    {shade === "temperature" ? "30 °C" : "0 %"}
    <span class="scale">
      {Array.from({ length: STEPS + 1 }, (_, step) => (
        <span key={step} class={`heat-${step}`} />
      ))}
    </span>
    {shade === "temperature" ? "90 °C" : "100 %"}
  </span>
);

function LineView({ line, shade, past }: { line: Line; shade: Shade; past: boolean }) {
  if (line.title) return <h2 class="line-title">{line.title}</h2>;
  return (
    <div class="tile-line">
      {line.tiles.map((tile) => (
        <TileView key={nameOf(tile)} tile={tile} shade={shade} past={past} />
      ))}
    </div>
  );
}

// A device that cannot report has no figure of what is in use.
const memoryOf = (device: DeviceRow): string => (device.usedMiB === null ? gib(device.memoryMiB) : t("memoryUsed", gib(device.usedMiB), gib(device.memoryMiB)));

const said = (tile: Tile): string =>
  `${nameOf(tile)}: ${stateName(tile.state)}, ${t("promised")} ${figureOf(tile, "promised")}, ${memoryOf(tile.device)}`;
const saidThen = (tile: Tile): string => `${nameOf(tile)}: ${SHADES.map((each) => `${t(each)} ${figureOf(tile, each)}`).join(", ")}`;

function figureOf({ figures }: Tile, shade: Shade): string {
  const value = figures[shade];
  return value === null ? "–" : shade === "temperature" ? `${value} °C` : percent(value);
}

// The figure is the tile's colour in words; a bar below it has each tenant's share.
function TileView({ tile, shade, past }: { tile: Tile; shade: Shade; past: boolean }) {
  const { device } = tile;
  const name = nameOf(tile);
  const value = valueOf(tile, shade);
  const step = value === null || value === 0 ? 0 : Math.max(1, Math.ceil(value * STEPS));
  const shares = [...device.tenants.map((each) => each.shareMilli), ...(device.others ? [device.others.shareMilli] : [])];
  return (
    <button type="button" class={`device ${past ? "" : `device-${tile.state}`} heat-${step}`} aria-label={past ? saidThen(tile) : said(tile)} aria-pressed={place.value.query.get("device") === name} onClick={() => setQuery({ device: name })}>
      <span class="device-name clip">{name}</span>
      <span class="device-figure" data-figure={figureOf(tile, shade)} />
      {!past && (
        <span class="shares">
          {shares.map((share, index) => (
            <span key={index} class={index >= device.tenants.length ? "share other" : "share"} style={{ width: `${share / 10}%` }} />
          ))}
        </span>
      )}
    </button>
  );
}

function Chosen({ tile }: { tile: Tile | undefined }) {
  if (!tile) return null;
  const { node, device } = tile;
  const facts: Fact[] = [
    [t("node"), <NodeLink name={node.name} />],
    [t("model"), device.model],
    [t("promised"), figureOf(tile, "promised")],
    [t("memory"), memoryOf(device)],
    [t("load"), device.utilization === null ? "–" : percent(device.utilization)],
    [t("temperature"), figureOf(tile, "temperature")],
    [t("power"), device.powerWatts === null ? "–" : `${device.powerWatts} W`],
    [t("measured"), age(device.measuredAt ?? node.observedAt)],
  ];
  return (
    <Dialog drawer title={nameOf(tile)} onClose={() => setQuery({ device: "" })}>
      <div class="row">
        <DeviceBadge device={device} />
        {device.message && <span class="muted"><English text={device.message} /></span>}
      </div>
      <Facts facts={facts} />
      <h3>{t("tenants")}</h3>
      {device.tenants.length === 0 && !device.others && <p class="muted">{t("noTenants")}</p>}
      <ul class="bullets">
        {device.tenants.map((each) => (
          <li key={each.pod}>
            {each.namespace}/{each.pod}: {each.shareMilli / 1000}, {t("promised")} {gib(each.memoryMiB)}
            {each.usedMiB !== null && `, ${t("used")} ${gib(each.usedMiB)}`}{" "}
            {each.job !== null && <a href={`${pathTo("jobs")}?state=all&namespace=${encodeURIComponent(each.namespace)}&jobs=${each.job}`}>{t("job")} {each.job}</a>}
          </li>
        ))}
        {device.others && (
          <li>
            {t("anotherTenant")}: {device.others.shareMilli / 1000}, {t("promised")} {gib(device.others.memoryMiB)}
          </li>
        )}
      </ul>
    </Dialog>
  );
}
