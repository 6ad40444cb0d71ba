export default function QueuePage() {
  return <h1>Queue</h1>;
}
