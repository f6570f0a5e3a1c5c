/** A component that renders again only when one of its props is another value. Preact's compat layer is not needed. */
import { Component, type ComponentChild, h } from "preact";

export type { ComponentChild };

export function memo<P extends object>(render: (props: P) => ComponentChild) {
  class Inner extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const a = this.props as Record<string, unknown>;
      const b = next as Record<string, unknown>;
      for (const key of Object.keys(b)) if (key !== "children" && a[key] !== b[key]) return true;
      return Object.keys(a).length !== Object.keys(b).length;
    }
    override render(props: P): ComponentChild {
      return h(render as never, props as never);
    }
  }
  return Inner as unknown as (props: P & { key?: string | number }) => ComponentChild & { type: never };
}
