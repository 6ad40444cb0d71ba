export default function EventsPage() {
  return <h1>Events</h1>;
}
