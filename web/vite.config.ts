import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// Redoc's bundle as this page can have it: it asks for a package "null" in Node.js alone, and its footer would ask its makers'
// server for a logo. The page asks nobody but its own server.
const redoc = {
  name: "redoc",
  resolveId: (source: string) => (source === "null" ? "\0null" : undefined),
  load: (id: string) => (id === "\0null" ? "export default null" : undefined),
  transform: (code: string, id: string) =>
    id.includes("/redoc/bundles/") ? code.replace("https://cdn.redoc.ly/redoc/logo-mini.svg", "data:,") : undefined,
};

// In development the page is served by Vite and the API by the scheduler of `headway up`.
export default defineConfig({
  plugins: [react(), redoc],
  build: {
    target: "es2022",
    // Redoc comes as one piece, for the reference alone.
    chunkSizeWarningLimit: 1200,
    rolldownOptions: { input: ["index.html", "docs.html"] },
  },
  server: { proxy: { "/api": "http://127.0.0.1:7600" } },
});
