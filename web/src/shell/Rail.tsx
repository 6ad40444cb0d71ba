import { Link } from "@tanstack/react-router";
import { PAGES } from "./pages";

export function Rail({ waiting }: { waiting: number }) {
  return (
    <nav className="rail" aria-label="Pages">
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
          <span className="rail-name">{page.name}</span>
          {page.to === "/plan" && waiting > 0 && <span className="rail-count">{waiting}</span>}
        </Link>
      ))}
    </nav>
  );
}
