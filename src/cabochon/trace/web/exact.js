/**
 * What went into a step and came out, exactly. The letters are those of the project's notation: T rows, P page groups,
 * L layers, D hidden size, H query heads, G key/value heads, E head dimension, R rows whose logits are wanted, V vocabulary.
 */

import { bytes, count, interval } from "cabochon/dom.js";
import { spanOf, valuesOf } from "cabochon/run.js";

/** A few of some integers. */
function few(values) {
  return values.length > 8 ? `${values.slice(0, 5).join(", ")}, … ${values[values.length - 1]}` : values.join(", ");
}

/**
 * Lines of a table.
 *
 * @returns {[string, string][]}
 */
export function exact(run, { way, step, sequence }) {
  const share = way.share(step, sequence);
  const { model, layers, groups } = run;
  const T = share.ids.length;
  const R = share.choices.length === 0 ? 0 : share.guesses + 1;
  const lines = [
    ["ids", `[T=${T}] int32: ${few(share.ids)}`],
    ["positions", `[T=${T}] int32: ${few(valuesOf(share.positions))}; pair i of q and k is turned by position × θ^(−2i/E), once`],
  ];
  groups.forEach((group, g) => lines.push(...ofGroup(run, share, group, g, T)));
  const cap = model.attn_softcap === null ? "scale · q·k" : `${model.attn_softcap} · tanh(scale · q·k / ${model.attn_softcap})`;
  lines.push(["attention", `row t, head h: softmax over keys j = first_key[t] … last_key[t] of ${cap}, then the sum of v[j] with these weights`]);
  lines.push(["rows", `[T=${T}, D=${model.hidden}] float32 through L=${layers} layers; nothing of an earlier row is computed again`]);
  const bent = model.final_softcap === null ? "" : `, then ${model.final_softcap} · tanh(logit / ${model.final_softcap})`;
  lines.push(["logits", R === 0 ? "none: no row's are wanted" : `[R=${R}, V=${count(model.vocab)}] float32${bent}; the row at position i scores the token of i + 1`]);
  lines.push(...ofStep(way.steps[step], model));
  return lines;
}

function ofGroup(run, share, group, g, T) {
  const { kv_heads: G, head_dim: E, layers, window } = group;
  const slots = valuesOf(share.slots[g]).map((slot) => `${Math.floor(slot / run.page)}:${slot % run.page}`);
  const [low, high] = [spanOf(share.first_key[g])[0], spanOf(share.last_key[g])[1]];
  const mask =
    T === 1
      ? `keys ${interval(low, high)}, ${count(high - low + 1)} of them`
      : `first_key ${few(valuesOf(share.first_key[g]))}; last_key ${few(valuesOf(share.last_key[g]))}`;
  const name = `${layers.length} ${window === null ? "global" : "sliding"}`;
  return [
    [`${name}: slots`, `[T=${T}] int32, page:slot: ${few(slots)}`],
    [`${name}: mask row`, `${mask}${window === null ? "" : `; window ${window}`}`],
    [
      `${name}: shapes`,
      `q [T=${T}, H=${run.model.heads}, E=${E}]; k, v written [T=${T}, G=${G}, E=${E}], read [${count(high - low + 1)}, G=${G}, E=${E}]` +
        ` in ${run.model.kv_type}, ${bytes(T * group.position_bytes)} a layer`,
    ],
  ];
}

/** Of all sequences together. */
function ofStep({ cost, seconds }, model) {
  return [
    ["whole step", `${count(cost.tokens)} rows in ${(seconds * 1000).toFixed(1)} ms; K/V ${bytes(cost.bytes_read)} read, ${bytes(cost.bytes_written)} written`],
    [
      "pairs",
      `${count(cost.pairs)} = Σ over layers of H=${model.heads} × Σ over rows of (last_key − first_key + 1);` +
        " in the last layer only rows whose logits are wanted look at keys",
    ],
  ];
}
