// What pages do besides htmx: a form is sent once, and a lost line is told.
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
document.addEventListener("htmx:sseOpen", () => line(false));
document.addEventListener("htmx:sseError", () => line(true));
document.addEventListener("input", (event) => {
  const shown = event.target.parentElement.querySelector(`output[for="${event.target.id}"]`);
  if (shown) shown.value = event.target.value;
});
