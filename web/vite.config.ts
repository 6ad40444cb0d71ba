import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// In development the page is served by Vite and the API by the scheduler of `headway up`.
export default defineConfig({
  plugins: [react()],
  build: { target: "es2022", chunkSizeWarningLimit: 700 },
  server: { proxy: { "/api": "http://127.0.0.1:7600" } },
});
