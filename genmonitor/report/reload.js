// Put at the end of a page that the tab shows: told to, the page loads itself again and looks as it did, scrolled to the
// same place, with the same parts unfolded and sliders where they were. The frame's name is all that outlives a page.
{
  const parts = () => [...document.querySelectorAll("details, select, input")];
  // a slider at its end stays at the end: there the latest evaluation is
  const state = (part) => part.open ?? (part.type === "range" && part.value === part.max ? null : part.value);

  addEventListener("message", (event) => {
    if (event.source !== parent) return;
    window.name = JSON.stringify({ at: scrollY, states: parts().map(state) });
    location.reload();
  });

  if (window.name) {
    const { at, states } = JSON.parse(window.name);
    window.name = "";
    parts().forEach((part, i) => {
      if (states.length !== parts().length || states[i] === null) return;
      if (part.localName === "details") part.open = states[i];
      else if (part.value !== states[i]) {
        part.value = states[i];
        part.dispatchEvent(new Event("input"));
        part.dispatchEvent(new Event("change"));
      }
    });
    // pictures have their sizes once the page is loaded, charts once they have been laid out in a frame
    const later = (then) => () => requestAnimationFrame(then);
    addEventListener("load", later(later(() => scrollTo(0, at))));
  }
}
