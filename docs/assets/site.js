// A line of code that is wider than the screen is scrolled by the keyboard, on machines without a mouse too.
for (const code of document.querySelectorAll("pre > code")) {
  const focusable = () => { if (!code.hasAttribute("tabindex")) code.tabIndex = 0; };
  new MutationObserver(focusable).observe(code, {attributeFilter: ["tabindex"]});
  focusable();
}
