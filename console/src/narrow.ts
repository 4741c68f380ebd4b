// Whether the window is as narrow as a telephone, where tables become lists. The width is that of the styles.
import { signal } from "@preact/signals";

const query = matchMedia("(max-width: 40rem)");

export const narrow = signal(query.matches);
query.addEventListener("change", () => (narrow.value = query.matches));
