// What pages do besides htmx.
"use strict";
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.sent) { event.preventDefault(); return; }
  form.dataset.sent = "yes";
  for (const button of form.querySelectorAll("button")) button.setAttribute("aria-disabled", "true");
  const wait = form.querySelector(".wait-text");
  if (wait) wait.hidden = false;
});
window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
const line = (lost) => { document.getElementById("line").hidden = !lost; };
document.addEventListener("htmx:sseOpen", () => {
  if (!document.getElementById("line").hidden) htmx.trigger("#live", "sse:changed");  // what was missed meanwhile
  line(false);
});
document.addEventListener("htmx:sseError", () => line(true));
document.addEventListener("input", (event) => {
  const shown = event.target.parentElement.querySelector(`output[for="${event.target.id}"]`);
  if (shown) shown.value = event.target.value;
});
// Why a form was not taken stands beside it, and what was typed stays.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (!detail.target.matches("[role=alert]")) return;
  detail.shouldSwap = true;
  detail.isError = false;
  detail.target.hidden = false;
});
document.addEventListener("htmx:sendError", ({ detail }) => {
  if (!detail.target.matches("[role=alert]")) return;
  detail.target.textContent = "The server of this page does not answer. What you typed is still here.";
  detail.target.hidden = false;
});
// Forms are about what their reader saw: once it has changed they go, and the page says so.
document.addEventListener("htmx:afterSettle", () => {
  const live = document.getElementById("live"), forms = document.getElementById("forms");
  if (live.dataset.state === forms.dataset.state) return;
  forms.hidden = true;
  document.getElementById("changed").hidden = false;
});
// A column stands in the list that its box names; dragging its name sets the box, and so does a keyboard.
let dragged = null;
document.addEventListener("dragstart", (event) => {
  dragged = event.target.closest?.("[draggable]")?.closest("[data-column]") ?? null;
  if (!dragged) return;
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setDragImage(dragged, 10, 10);
});
document.addEventListener("dragend", () => { dragged = null; });
document.addEventListener("dragover", (event) => { if (dragged && event.target.closest?.("[data-list]")) event.preventDefault(); });
document.addEventListener("drop", (event) => {
  const list = event.target.closest?.("[data-list]"), box = dragged?.querySelector("[data-moves]");
  if (!list || !box) return;
  event.preventDefault();
  if (box.checked === (list.dataset.list === "in")) return;
  box.checked = !box.checked;
  box.dispatchEvent(new Event("change", { bubbles: true }));
});
const settle = (box) => {
  document.querySelector(`[data-list="${box.checked ? "in" : "out"}"]`).append(box.closest("[data-column]"));
};
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-moves]")) return;
  settle(event.target);
  event.target.focus();
});
window.addEventListener("load", () => document.querySelectorAll("[data-moves]:not(:checked)").forEach(settle));
