import { expect, test } from "vitest";
import { type ReservationForm, commandOf, emptyForm, lackingIn, namesIn, requestOf } from "./form";

const form: ReservationForm = { ...emptyForm(["n1", "n2"]), name: "psu-swap" };

test("names are separated by commas, spaces or lines, and count once", () => {
  expect(namesIn(" n1, n2\nn3  n1,")).toEqual(["n1", "n2", "n3"]);
  expect(namesIn(" ")).toEqual([]);
});

test("a form names what it lacks", () => {
  expect(lackingIn(form)).toBeUndefined();
  expect(lackingIn({ ...form, name: " " })).toMatch(/name/);
  expect(lackingIn({ ...form, nodes: "," })).toMatch(/node/);
  expect(lackingIn({ ...form, amount: "0" })).toMatch(/duration/);
  expect(lackingIn({ ...form, maintenance: false })).toMatch(/member/);
  expect(lackingIn({ ...form, maintenance: false, users: "ada" })).toBeUndefined();
});

test("maintenance has no members, whatever was typed", () => {
  expect(requestOf({ ...form, users: "ada" })).toEqual({ name: "psu-swap", nodes: ["n1", "n2"], duration_seconds: 7_200, maintenance: true });
});

test("a request begins at the local time that was typed", () => {
  const request = requestOf({ ...form, from: "2026-12-01T09:30", maintenance: false, users: "ada grace" });
  expect(request.from).toBe(new Date(2026, 11, 1, 9, 30).toISOString());
  expect(request.users).toEqual(["ada", "grace"]);
});

test("the command says the same", () => {
  expect(commandOf(form)).toBe("headway reservation create psu-swap --node n1 --node n2 --for 2h --maintenance");
  expect(commandOf({ ...form, name: "", maintenance: false, unit: 60, amount: "30", projects: "prod" })).toBe("headway reservation create NAME --node n1 --node n2 --for 30m --project prod");
});
