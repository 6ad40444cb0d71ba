import { Link, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { PAGES } from "./pages";

export function Rail({ waiting }: { waiting: number }) {
  const rail = useRef<HTMLElement>(null);
  const path = useRouterState({ select: (state) => state.location.pathname });
  // Where it is a row that does not fit, the page that is shown is in sight.
  useEffect(() => {
    rail.current?.querySelector("[aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [path]);
  return (
    <nav className="rail" aria-label="Pages" ref={rail}>
      {PAGES.map((page) => (
        <Link
          key={page.to}
          to={page.to}
          search={{}}
          activeOptions={{ exact: page.to === "/", includeSearch: false }}
          activeProps={{ "aria-current": "page" }}
          title={`${page.name} (g ${page.key})`}
        >
          <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden>
            <path d={page.icon} fill="currentColor" />
          </svg>
          <span className="rail-name">{page.short ?? page.name}</span>
          {page.to === "/plan" && waiting > 0 && <span className="rail-count">{waiting}</span>}
        </Link>
      ))}
    </nav>
  );
}
