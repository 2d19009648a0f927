// Renews the part of a page that changes, as the server sends it. Without this script the page is what it was on loading.
(() => {
  const live = document.getElementById("live");
  if (!live?.dataset.events) return;
  let isPaused = false;

  // The server leaves the button hidden, since it does nothing without this script.
  const offerPause = () => {
    const button = document.getElementById("pause");
    if (!button || !button.hidden) return;
    button.hidden = false;
    button.addEventListener("click", () => {
      isPaused = !isPaused;
      button.textContent = isPaused ? "Go on with the log" : "Pause the log";
      button.setAttribute("aria-pressed", String(isPaused));
    });
  };
  const isKept = (node) => node.id === "pause" || (node.id === "log" && isPaused);

  const source = new EventSource(live.dataset.events);
  source.addEventListener("loop", (event) => {
    Idiomorph.morph(live, event.data, {
      morphStyle: "innerHTML",
      callbacks: { beforeNodeMorphed: (node) => !isKept(node) },
    });
    offerPause();
  });
  source.addEventListener("over", () => source.close());
  offerPause();
})();
