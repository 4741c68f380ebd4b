// Text to copy, and the same as a command line, folded away.
import { Check, ChevronRight, Copy } from "lucide";
import { useSignal } from "@preact/signals";
import { t } from "../texts";
import { Icon } from "./icon";
import { Button } from "./button";

export function Code({ text, label }: { text: string; label: string }) {
  const copied = useSignal(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    copied.value = true;
    setTimeout(() => (copied.value = false), 2000);
  };
  return (
    <div class="command">
      <Button small icon={copied.value ? Check : Copy} onClick={() => void copy()}>
        {copied.value ? t("copied") : t("copy")}
      </Button>
      <pre class="code" role="region" aria-label={label}>{text}</pre>
    </div>
  );
}

export const Command = ({ lines, label }: { lines: readonly string[]; label?: string }) => (
  <details class="disclosure">
    <summary>
      <Icon of={ChevronRight} /> {label ?? t("asCommand")}
    </summary>
    <Code text={lines.join("\n")} label={label ?? t("asCommand")} />
  </details>
);
