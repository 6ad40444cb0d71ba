import "@mantine/core/styles/baseline.css";
import "@mantine/core/styles/default-css-variables.css";
import "@mantine/core/styles/global.css";
import "@mantine/core/styles/UnstyledButton.css";
import "@mantine/core/styles/Button.css";
import "@mantine/core/styles/CloseButton.css";
import "@mantine/core/styles/Overlay.css";
import "@mantine/core/styles/Paper.css";
import "@mantine/core/styles/Popover.css";
import "@mantine/core/styles/ModalBase.css";
import "@mantine/core/styles/Modal.css";
import "@mantine/core/styles/Menu.css";
import "@mantine/core/styles/Skeleton.css";
import "./theme/tokens.css";
import "./theme/base.css";

import { MantineProvider, createTheme } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/client";
import { enter } from "./api/session";
import { router } from "./router";
import { Entrance } from "./shell/Entrance";

const theme = createTheme({
  fontFamily: "system-ui, sans-serif",
  fontSizes: { xs: "12px", sm: "13px", md: "14px" },
  defaultRadius: "sm",
});
// Old data stays on the screen while new is asked for, and when asking fails. What the server refuses is not asked again. A browser that believes
// itself offline may reach the server all the same: it may be on the same machine.
const queries = new QueryClient({
  defaultOptions: {
    queries: { staleTime: 1_000, networkMode: "always", retry: (times, error) => times < 1 && !(error instanceof ApiError && error.status < 500) },
    mutations: { networkMode: "always" },
  },
});

const root = document.getElementById("root");
if (root) {
  // Asked once, whatever React does: the token of the address bar is there once.
  const entering = enter();
  createRoot(root).render(
    <StrictMode>
      <MantineProvider theme={theme} defaultColorScheme="auto">
        <QueryClientProvider client={queries}>
          <Entrance entering={entering}>
            <RouterProvider router={router} />
          </Entrance>
        </QueryClientProvider>
      </MantineProvider>
    </StrictMode>,
  );
}
