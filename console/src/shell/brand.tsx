// The name and its sign, a dovetail joint.
import { pathTo } from "../router";

export const Brand = () => (
  <a class="brand" href={pathTo("overview")} aria-label="Dovetail">
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="var(--accent-fill)" />
      <path fill="var(--on-accent)" d="M7 7h18v7h-5l2 11H10l2-11H7z" />
    </svg>
    <span>Dovetail</span>
  </a>
);
