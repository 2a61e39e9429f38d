// Prism's client follows a redirect itself; a forge's answer has to reach ours, which must not take its token along.
const path = require("path");
const prism = path.dirname(require.resolve("@stoplight/prism-http", { paths: [process.env.PRISM_MODULES] }));
const id = require.resolve("node-fetch", { paths: [prism] });
const fetch = require(id);
const manual = (url, options) => fetch(url, { ...options, redirect: "manual" });
require.cache[id].exports = Object.assign(manual, fetch, { default: manual });
