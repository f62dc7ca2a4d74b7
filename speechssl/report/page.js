"use strict";
(() => {
  const list = document.querySelector(".tabs");
  if (list && list.children.length > 1) {
    const tabs = [...list.children];
    const select = (chosen, focus) => tabs.forEach((tab) => {
      const on = tab === chosen, panel = document.getElementById(tab.getAttribute("aria-controls"));
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      panel.style.display = on ? "" : "none";
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", tab.id);
      if (on && focus) tab.focus();
    });
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => select(tab));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step) select(tabs[(i + step + tabs.length) % tabs.length], true);
      });
    });
    list.hidden = false;
    select(tabs[0]);
  }

  const sounds = [...document.querySelectorAll("audio")];
  sounds.forEach((sound) => sound.addEventListener("play", () => sounds.forEach((other) => other !== sound && other.pause())));

  document.querySelectorAll(".example").forEach((box) => {
    const audio = box.querySelector(".passage"), svg = box.querySelector(".track svg"), head = box.querySelector(".playhead");
    const seconds = Number(box.dataset.seconds);
    let end = null, playing = null;

    const clear = () => { if (playing) playing.classList.remove("playing"); playing = end = null; };
    const ready = (then) => {
      if (audio.readyState >= 1) return then();
      audio.addEventListener("loadedmetadata", then, { once: true });
      audio.preload = "auto";
      audio.load();
    };
    const play = (start, stop, region) => ready(() => {
      clear();
      audio.currentTime = start;
      end = stop;
      playing = region;
      if (region) region.classList.add("playing");
      audio.play();
    });
    const draw = () => {
      head.style.left = 100 * Math.min(audio.currentTime / seconds, 1) + "%";
      if (end !== null && audio.currentTime >= end) { audio.pause(); audio.currentTime = end; clear(); }
      if (!audio.paused) requestAnimationFrame(draw);
    };
    audio.addEventListener("play", () => { head.classList.add("on"); requestAnimationFrame(draw); });
    audio.addEventListener("pause", clear);
    audio.addEventListener("seeked", draw);

    svg.addEventListener("click", (event) => {
      const region = event.target.closest(".region");
      if (region) return play(Number(region.dataset.start), Number(region.dataset.end), region);
      const frame = svg.getBoundingClientRect();
      play(seconds * (event.clientX - frame.left) / frame.width, null, null);
    });
    svg.addEventListener("keydown", (event) => {
      const region = event.target.closest(".region");
      if (!region || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      play(Number(region.dataset.start), Number(region.dataset.end), region);
    });
    const load = () => { if (box.open) box.querySelectorAll("audio").forEach((a) => { if (a.preload === "none") a.preload = "metadata"; }); };
    box.addEventListener("toggle", () => { load(); if (!box.open) box.querySelectorAll("audio").forEach((a) => a.pause()); });
    load();
  });
})();
