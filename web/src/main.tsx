import "@mantine/core/styles.css";
import "uplot/dist/uPlot.min.css";
import "./theme.css";

import { MantineProvider, createTheme } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { enter } from "./api/session";

const theme = createTheme({
  fontFamily: "system-ui, sans-serif",
  fontSizes: { xs: "12px", sm: "13px", md: "14px" },
  defaultRadius: "sm",
});
// Old data stays on the screen while new data is fetched, and when fetching fails.
const queries = new QueryClient({ defaultOptions: { queries: { staleTime: 1_000, retry: 1 } } });

const root = document.getElementById("root");
if (root) {
  void enter().then((loggedIn) =>
    createRoot(root).render(
      <StrictMode>
        <MantineProvider theme={theme} defaultColorScheme="auto">
          <QueryClientProvider client={queries}>
            <App loggedIn={loggedIn} />
          </QueryClientProvider>
        </MantineProvider>
      </StrictMode>,
    ),
  );
}
