// The pages of the rail: names, keys, glyphs.

export interface Page {
  to: "/" | "/queue" | "/jobs" | "/cluster" | "/reservations" | "/goodput" | "/plan" | "/timeline" | "/events" | "/reports" | "/settings";
  name: string;
  /** Name in the rail, if the full one is too long. */
  short?: string;
  /** After `g`. */
  key: string;
  /** A path of 20 × 20. */
  icon: string;
}

export const PAGES: readonly Page[] = [
  { to: "/", name: "Overview", key: "o", icon: "M3 11h6V3H3zm0 6h6v-4H3zm8 0h6V9h-6zm0-14v4h6V3z" },
  { to: "/queue", name: "Queue", key: "q", icon: "M3 4h14v3H3zm0 5h10v3H3zm0 5h6v3H3z" },
  { to: "/jobs", name: "Jobs", key: "j", icon: "M3 3h14v4H3zm0 5h14v1H3zm0 3h14v1H3zm0 3h14v1H3z" },
  { to: "/cluster", name: "Cluster", key: "c", icon: "M3 3h4v4H3zm5 0h4v4H8zm5 0h4v4h-4zM3 8h4v4H3zm5 0h4v4H8zm5 0h4v4h-4zM3 13h4v4H3zm5 0h4v4H8zm5 0h4v4h-4z" },
  { to: "/reservations", name: "Reservations", short: "Reserved", key: "n", icon: "M5 2h2v2h6V2h2v2h2v13H3V4h2zm0 6v7h10V8zm2 2h3v3H7z" },
  { to: "/goodput", name: "Goodput", key: "g", icon: "M3 16l4-6 4 3 6-10v3.5l-6 9.5-4-3-2.5 4z" },
  { to: "/plan", name: "Plan", key: "p", icon: "M3 5h8V2l6 5-6 5V9H3zm14 8h-8v-1l-6 3 6 4v-2h8z" },
  { to: "/timeline", name: "Timeline", key: "t", icon: "M3 4h7v3H3zm4 5h8v3H7zm3 5h7v3h-7z" },
  { to: "/events", name: "Events", key: "e", icon: "M4 3h2v14H4zm4 1h9v2H8zm0 5h7v2H8zm0 5h9v2H8z" },
  { to: "/reports", name: "Reports", key: "r", icon: "M4 17V9h3v8zm5 0V3h3v14zm5 0v-6h3v6z" },
  { to: "/settings", name: "Settings", key: "s", icon: "M3 6h8V4h3v2h3v2h-3v2h-3V8H3zm0 6h3v-2h3v2h8v2H9v2H6v-2H3z" },
];
