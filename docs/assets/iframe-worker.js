/* Browsers start no worker in a page that was opened from a disk: there the search runs in a frame. */
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      const load = (address) =>
        new Promise((loaded, failed) => {
          const script = inside.document.createElement("script")
          Object.assign(script, { src: address, onload: loaded, onerror: failed })
          inside.document.body.append(script)
        })
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve())
      const ready = load(url)
      this.postMessage = (data) =>
        ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }
  }
