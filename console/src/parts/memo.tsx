// Components that are drawn again only when one of their props is another, or when a signal that they read changes.
//
// An element that is kept and given again is not drawn either. But it refers to the tree in which it was drawn first, and
// so to all rows of that time: a tab with such elements grew by half a MiB a minute.
import { Component, type ComponentChild, createElement } from "preact";

export function memo<P extends object>(Drawn: (props: P) => ComponentChild): (props: P & { key?: string }) => ComponentChild {
  // A component of its own, since one that reads signals is also updated without new props.
  class Memo extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      return (Object.keys(next) as (keyof P)[]).some((name) => next[name] !== this.props[name]);
    }

    override render(): ComponentChild {
      return createElement(Drawn, this.props);
    }
  }
  return Memo as unknown as (props: P) => ComponentChild;
}
