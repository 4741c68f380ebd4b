// Dialogs and drawers: the browser's own dialog element keeps the focus in it, closes on Escape and hides the rest.
import { X } from "lucide";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { t } from "../texts";
import { IconButton } from "./button";

interface Props {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  // A drawer stands at the right edge, over the page's full height.
  drawer?: boolean;
}

export function Dialog({ title, onClose, children, drawer }: Props) {
  const id = useId();
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const opener = document.activeElement;
    element.current?.showModal();
    return () => {
      if (opener instanceof HTMLElement) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={drawer ? "panel drawer" : "panel dialog"}
      aria-labelledby={id}
      onClose={onClose}
      // A press on the dialog itself, and on none of its parts, is one on the backdrop.
      onMouseDown={(event) => event.target === element.current && onClose()}
    >
      <header>
        {/* The focus begins here, and not on a button that a press on Enter would use. */}
        <h2 id={id} tabIndex={-1} autofocus>
          {title}
        </h2>
        <IconButton icon={X} label={t("close")} onClick={onClose} small />
      </header>
      <div class="body stack">{children}</div>
    </dialog>
  );
}
