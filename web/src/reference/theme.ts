// Redoc's theme in the colours of the overview (theme.css); text keeps 4.5:1 against its ground.

const SANS = '-apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, Helvetica, Arial, sans-serif';
const MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';

interface Colours {
  panel: string;
  line: string;
  text: string;
  muted: string;
  link: string;
  good: string;
  bad: string;
}

function theme({ panel, line, text, muted, link, good, bad }: Colours) {
  // The tabs are above the samples, on dark ground.
  const response = (color: string, tabTextColor: string) => ({ color, backgroundColor: panel, tabTextColor });
  return {
    colors: {
      primary: { main: link },
      success: { main: good },
      error: { main: bad },
      text: { primary: text, secondary: muted },
      border: { dark: line, light: line },
      responses: {
        success: response(good, "#3fcf9b"),
        error: response(bad, "#ff8a80"),
        redirect: response(muted, "#9aa5b1"),
        info: response(muted, "#9aa5b1"),
      },
    },
    schema: {
      linesColor: line,
      typeNameColor: muted,
      typeTitleColor: muted,
      requireLabelColor: bad,
      nestedBackground: panel,
      arrow: { color: text },
    },
    typography: {
      fontSize: "14px",
      fontFamily: SANS,
      headings: { fontFamily: SANS, fontWeight: "600" },
      code: { fontFamily: MONO, fontSize: "12.5px", color: text, backgroundColor: panel, wrap: true },
      links: { color: link, visited: link, hover: link },
    },
    sidebar: { width: "300px", backgroundColor: panel, textColor: text, activeTextColor: link, arrow: { color: muted } },
    // Samples stay dark on both grounds, as Redoc draws them.
    rightPanel: { backgroundColor: "#171b21", textColor: "#e6e9ed", width: "36%" },
    codeBlock: { backgroundColor: "#0f1216" },
    fab: { backgroundColor: panel, color: link },

  };
}

export const LIGHT = theme({
  panel: "#ffffff",
  line: "#dfe3e8",
  text: "#16191d",
  muted: "#59636e",
  link: "#00588f",
  good: "#00704f",
  bad: "#b3261e",
});

export const DARK = theme({
  panel: "#171b21",
  line: "#2b323b",
  text: "#e6e9ed",
  muted: "#9aa5b1",
  link: "#6cbcf0",
  good: "#3fcf9b",
  bad: "#ff8a80",
});
