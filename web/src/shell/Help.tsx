import { Modal } from "@mantine/core";
import { PAGES } from "./pages";

const OTHERS = [
  ["Ctrl K", "search jobs, nodes, people and pages"],
  ["/", "the page's filter"],
  ["j k ↑ ↓", "next and former row, in a table; j k: line, in output"],
  ["Enter", "open the row"],
  ["← → Home End", "move the cursor, in a chart"],
  ["L", "back to the present"],
  ["Esc", "close"],
  ["?", "this"],
] as const;

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title="Keys" centered>
      <table className="help">
        <tbody>
          {PAGES.map((page) => (
            <tr key={page.to}>
              <th scope="row">
                <kbd>g</kbd> <kbd>{page.key}</kbd>
              </th>
              <td>{page.name}</td>
            </tr>
          ))}
          {OTHERS.map(([keys, words]) => (
            <tr key={keys}>
              <th scope="row">
                <kbd>{keys}</kbd>
              </th>
              <td>{words}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Modal>
  );
}
