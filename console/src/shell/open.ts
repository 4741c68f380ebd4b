// Which of the frame's own dialogs is open.
import { signal } from "@preact/signals";

export const paletteOpen = signal(false);
export const shortcutsOpen = signal(false);
