// The parts, once.
import { Ban, Inbox, Plus, RefreshCw } from "lucide";
import { useSignal } from "@preact/signals";
import type { Phase, Series } from "../../api/types";
import { Badge, type Tone } from "../../design/badge";
import { Button, ButtonLink, IconButton, type Kind } from "../../design/button";
import { Card, Facts, StatTile } from "../../design/card";
import { Code, Command } from "../../design/command";
import { Combobox } from "../../design/combobox";
import { Empty, Skeleton } from "../../design/empty";
import { Field, Input, Search, Select, TextArea } from "../../design/field";
import { Menu } from "../../design/menu";
import { Meter, MeterLine, PartsBar } from "../../design/meter";
import { Dialog } from "../../design/overlay";
import { Tabs } from "../../design/page";
import { Table } from "../../design/table";
import { notify, notifyProblem } from "../../design/toast";
import { PhaseBadge } from "../../parts/basics";
import { TimeChart } from "../../time/chart";
import { UNITS } from "../../time/units";
import { PHASES } from "../jobs/filter";

const KINDS: readonly Kind[] = ["primary", "secondary", "danger", "risky", "quiet"];
const TONES: readonly Tone[] = ["plain", "good", "warn", "bad", "info", "accent"];
const COLOURS = ["ground", "surface", "sunken", "line", "ink", "muted", "accent", "good", "warn", "bad", "info"];
const ROWS = [
  { node: "gpu-01", model: "8 × A100", load: 0.82 },
  { node: "gpu-02", model: "8 × V100", load: 0.31 },
];

const SERIES: Series = {
  since: "2026-11-01T12:00:00Z", stepSeconds: 300, keptSince: "2026-11-01T12:00:00Z", items: [], marksLeftOut: 0, source: "Dovetail", sourceProblem: "",
  marks: [{ at: "2026-11-01T12:05:00Z", kind: "Started", namespace: "vision", job: "train", number: 12, nodes: ["a"] }, { at: "2026-11-01T12:15:00Z", kind: "Preempted", namespace: "vision", job: "train", number: 12, nodes: ["a"] }],
};

export function Sheet({ scheme }: { scheme: "light" | "dark" }) {
  const open = useSignal<"dialog" | "drawer" | null>(null);
  const text = useSignal("");
  const chosen = useSignal("");
  const named = (part: string) => `${part}, ${scheme}`;
  return (
    <div class="stack wide">
      <div class="row apart">
        <p>
          <span class="strong">Inter, 14 px; figures of one width: <span class="digits">0123456789</span></span> <Badge tone="accent">{scheme}</Badge>
        </p>
        <Button kind="primary" icon={Plus}>With an icon</Button>
      </div>
      <Card title={named("Colours")}>
        <ul class="legend">
          {COLOURS.map((name) => (
            <li key={name}>
              <span class="mark" style={{ background: `var(--${name})`, border: "1px solid var(--line-strong)" }} aria-hidden="true" /> {name}
            </li>
          ))}
        </ul>
      </Card>
      <Card title={named("Buttons")}>
        <div class="stack">
          <div class="row">{KINDS.map((kind) => <Button key={kind} kind={kind}>{kind}</Button>)}</div>
          <div class="row">
            {KINDS.map((kind) => <Button key={kind} kind={kind} small icon={RefreshCw}>{kind}</Button>)}
            <Button disabled>disabled</Button>
            <ButtonLink href="/console/design">link</ButtonLink>
            <IconButton icon={Ban} label={named("Icon with a tooltip")} onClick={() => undefined} />
            <Menu label={named("Menu")} items={[{ id: "a", text: "First", onSelect: () => undefined }, { id: "b", text: "Second", apart: true, end: "g s", onSelect: () => undefined }]}>Menu</Menu>
          </div>
        </div>
      </Card>
      <Card title={named("Badges")}>
        <div class="stack">
          <div class="row">{TONES.map((tone) => <Badge key={tone} tone={tone}>{tone}</Badge>)}</div>
          <div class="row">{PHASES.map((phase: Phase) => <PhaseBadge key={phase} phase={phase} />)}</div>
        </div>
      </Card>
      <Card title={named("Fields")}>
        <div class="fields">
          <Field label={named("Text")} hint="A hint says what is allowed."><Input value={text.value} onText={(typed) => (text.value = typed)} /></Field>
          <Field label={named("With a problem")} problem="time limit &quot;soon&quot;: write a number and s, m, h or d, such as 30m"><Input value="soon" onText={() => undefined} /></Field>
          <Field label={named("Select")}><Select value="a" choices={[["a", "First"], ["b", "Second"]]} onChoose={() => undefined} /></Field>
          <Field label={named("Combobox")} optional><Combobox label={named("Combobox")} values={["nlp", "vision", "speech"]} value={chosen.value} onChoose={(value) => (chosen.value = value)} /></Field>
          <Field label={named("Text of lines")} wide><TextArea rows={2} value="python train.py" onText={() => undefined} /></Field>
        </div>
      </Card>
      <div class="toolbar">
        <Search label={named("Search")} value="" onText={() => undefined} />
        <Combobox inBar label={named("User")} values={["anna", "ben"]} value={chosen.value === "anna" ? "anna" : ""} onChoose={(value) => (chosen.value = value)} />
      </div>
      <div class="tiles">
        <StatTile label="Promised" value="34.5" of="of 56 GPUs"><Meter part={0.62} label="62 %" /></StatTile>
        <StatTile label="Longest wait" value="4 h 12 min" note="17 segment" href="/console/design" />
      </div>
      <Card title={named("Parts of a whole")}>
        <PartsBar label={named("Parts")} parts={[{ label: "at work", value: 24, text: "24", tone: "good" }, { label: "idle", value: 10, text: "10", tone: "warn" }, { label: "free", value: 18, text: "18", tone: "empty" }, { label: "closed", value: 4, text: "4", tone: "bad" }]} />
      </Card>
      <section class="card" aria-label={named("Tabs and table")}>
        <Tabs label={named("Tabs")} tabs={[{ href: "/console/design", text: "Running", count: 12, current: true }, { href: "/console/design?tab=2", text: "Queued", count: 3, current: false }]} />
        <Table label={named("Table")} rows={ROWS} keyOf={(row) => row.node} columns={[{ id: "node", title: "Node", cell: (row) => <a class="open" href="/console/nodes">{row.node}</a> }, { id: "model", title: "Model", cell: (row) => row.model }, { id: "load", title: "Load", cell: (row) => <MeterLine part={row.load} label={`${row.load * 100} %`} text={`${row.load * 100} %`} tone="good" /> }]} />
      </section>
      <Card title={named("Facts")}><Facts facts={[["User", "anna"], ["Namespace", "vision"], ["Request", "2 × 8(V100)"]]} /></Card>
      <Card title={named("Dialogs and toasts")}>
        <div class="row">
          <Button onClick={() => (open.value = "dialog")}>Dialog</Button>
          <Button onClick={() => (open.value = "drawer")}>Drawer</Button>
          <Button onClick={() => notify("Cancelled: 2 next")}>Toast</Button>
          <Button onClick={() => notifyProblem("you may not patch gpujobs.dovetail.dev in namespace red")}>Toast of a problem</Button>
        </div>
        {open.value && (
          <Dialog title={named(open.value)} drawer={open.value === "drawer"} onClose={() => (open.value = null)}>
            <p>The focus stays in it, and Escape closes it.</p>
            <div class="buttons"><Button onClick={() => (open.value = null)}>Keep it</Button><Button kind="danger" onClick={() => (open.value = null)}>Cancel the job</Button></div>
          </Dialog>
        )}
      </Card>
      <Card title={named("Chart")}><TimeChart title={named("Load")} unit={UNITS.share} series={SERIES} marks={SERIES.marks} lines={[{ name: "0", values: [0.2, 0.8, 0.7, null, 0.9], filled: true }, { name: "1", values: [0.1, 0.3, 0.3, 0.5, 0.4] }]} /></Card>
      <Card title={named("Empty")}><Empty icon={Inbox} title="No jobs yet" text="Submit one to see it here." actions={<Button kind="primary">New job</Button>} /></Card>
      <Card title={named("Loading")}><Skeleton /></Card>
      <Card title={named("Text to copy")}>
        <div class="stack"><Code label={named("Code")} text="gbatch -g 2 python train.py" /><Command label={named("Folded")} lines={["gqueue -u all"]} /></div>
      </Card>
    </div>
  );
}
