// Design: every part of the console in both colours, to look at when one is changed.
import { PageHead } from "../../design/page";
import { t } from "../../texts";
import { Sheet } from "./sheet";

export const DesignPage = () => (
  <>
    <PageHead title={t("design")} lead={t("designHow")} />
    <div class="halves">
      {(["light", "dark"] as const).map((scheme) => (
        // The tokens follow the scheme of the element that uses them.
        <div key={scheme} class="sheet" style={{ colorScheme: scheme }}>
          <Sheet scheme={scheme} />
        </div>
      ))}
    </div>
  </>
);
