export default function NodePage() {
  return <h1>Node</h1>;
}
