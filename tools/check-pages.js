// Reports what a reader could not see or read on this page, a line each, as the text of an element `output`.
"use strict";
(() => {
    const found = new Set();
    const name = (element) => {
        const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 60);
        return `${element.tagName.toLowerCase()} "${text}"`;
    };
    // A colour as [red, green, blue, alpha], as the browser draws it.
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
        return [red, green, blue, alpha / 255];
    };
    // A gradient counts as its first colour.
    const painted = (paint) => {
        const stop = paint.startsWith("url(") && document.querySelector(`${paint.match(/#[^"')]+/)[0]} stop`);
        return rgba(stop ? getComputedStyle(stop).stopColor : paint);
    };
    const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
    const luminance = ([red, green, blue]) => {
        const linear = [red, green, blue].map((value) => {
            const part = value / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const contrast = (one, other) => {
        const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const canvasColour = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
    // What lies behind the middle of a box, from the top down, as far as it is painted by backgrounds and filled shapes.
    const behind = (element, box) => {
        const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
        const layers = [];
        for (const below of document.elementsFromPoint(x, y)) {
            if (below === element || element.contains(below)) continue;
            const style = getComputedStyle(below);
            const isShape = below instanceof SVGGeometryElement;
            const colour = painted(isShape ? style.fill : style.backgroundColor);
            if (isShape) colour[3] *= style.fillOpacity * style.opacity;
            if (isShape ? style.fill !== "none" : colour[3] > 0) layers.push(colour);
        }
        return layers.reverse().reduce((below, top) => over(top, below), canvasColour);
    };
    document.querySelectorAll("details").forEach((details) => { details.open = true; });
    if (document.documentElement.scrollWidth > innerWidth + 1) {
        found.add(`the page is ${document.documentElement.scrollWidth} pixels wide`);
    }
    const own = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    for (const element of document.querySelectorAll("body *")) {
        const style = getComputedStyle(element);
        const isHidden = style.visibility === "hidden" || style.opacity === "0" || element.closest("script, style, title, desc, defs");
        if (isHidden || !own(element)) continue;
        element.scrollIntoView({ block: "center", inline: "center" });
        const box = element.getBoundingClientRect();
        if (!box.width || !box.height) continue;
        const picture = element.closest("svg");
        if (picture && picture !== element) {
            const frame = picture.getBoundingClientRect();
            if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) {
                found.add(`${name(element)} reaches out of its picture`);
            }
        } else if (style.overflowX === "hidden" && element.scrollWidth > element.clientWidth + 1) {
            found.add(`${name(element)} is cut`);
        }
        const background = behind(element, box);
        const ink = painted(picture ? style.fill : style.color);
        ink[3] *= picture ? style.fillOpacity : 1;
        const ratio = contrast(over(ink, background), background);
        const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
        if (ratio < (isLarge ? 3 : 4.5)) found.add(`${name(element)} has a contrast of ${ratio.toFixed(2)}`);
    }
    const output = document.createElement("output");
    output.id = "checked";
    output.textContent = [...found].join("\n");
    document.body.append(output);
})();
