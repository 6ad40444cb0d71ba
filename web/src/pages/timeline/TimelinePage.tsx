export default function TimelinePage() {
  return <h1>Timeline</h1>;
}
