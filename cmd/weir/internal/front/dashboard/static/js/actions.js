// What an operator changes. Each asks first, and wants a reason, which goes to the audit log.

import * as api from './api.js';
import { ask, note } from './dialog.js';
import { duration, quoted } from './format.js';
import { refusedFor, sentence, unlimited } from './state.js';

const why = {
  name: 'reason',
  label: 'Reason',
  required: true,
  longest: 1024,
  hint: 'It goes to the audit log, with your name.',
};

const units = [
  ['60', 'minutes'],
  ['3600', 'hours'],
  ['86400', 'days'],
  ['1', 'seconds'],
];

const named = (policy, key) => `key ${quoted(key)} of policy ${quoted(policy)}`;

// A lockout goes on whatever else is changed, unless it is ended with it. A state without one has nothing to say.
const lockout = (state) =>
  state?.locked_for
    ? {
        lines: [`It is locked out for ${duration(state.locked_for)} still, which this does not change.`],
        fields: [{ name: 'unlock', kind: 'check', label: 'End its lockout too', value: false }],
      }
    : { lines: [], fields: [] };

// withUnlock does a change of a key and, if it was asked for, ends the lockout for the same reason.
async function withUnlock(action, body, { unlock: too, reason }, done, nothing) {
  if (!too) return change(action, body, done, nothing);
  const answer = await api.post(`/v1/admin/${action}`, body);
  await change('unlock', { policy: body.policy, key: body.key, reason }, `${done}, and unlocked`, done);
  return answer;
}

/** unlock lets a key in that is locked out. Like all below it answers null if the operator has changed their mind. */
export function unlock(policy, key) {
  return ask({
    title: 'Unlock',
    lines: [`The lockout of ${named(policy, key)} ends now. The limits go on as before.`],
    fields: [why],
    action: 'Unlock',
    run: ({ reason }) => change('unlock', { policy, key, reason }, 'Unlocked', 'It was not locked out any more'),
  });
}

/** reset forgets what a key has used. state is that of the key. */
export function reset(policy, key, state) {
  const locked = lockout(state);
  return ask({
    title: 'Reset',
    lines: [`What ${named(policy, key)} has used is forgotten: all its permits are available again.`, ...locked.lines],
    fields: [...locked.fields, why],
    action: 'Reset',
    danger: true,
    run: (values) =>
      withUnlock('reset', { policy, key, reason: values.reason }, values, 'Reset', 'Nothing was kept of the key'),
  });
}

/** restore ends an override. */
export function restore(policy, key) {
  return ask({
    title: 'Restore',
    lines: [`The limits of the policy hold again for ${named(policy, key)}.`],
    fields: [why],
    action: 'Restore',
    run: ({ reason }) => change('restore', { policy, key, reason }, 'Restored', 'There was no override any more'),
  });
}

/** override makes other limits apply to a key for a while. state is that of the key, with its limits. */
export function override(policy, key, state) {
  const limits = state?.limits ?? [];
  const locked = lockout(state);
  return ask({
    title: 'Override',
    lines: [`Other limits apply to ${named(policy, key)} for a while, in this process.`, ...locked.lines],
    fields: [
      ...limits.map((limit, i) => ({
        name: `limit${i}`,
        label: limit.name ? `Limit ${quoted(limit.name)}` : 'Limit',
        value: limit.holds === unlimited ? '' : limit.holds,
        hint: `In force: ${limit.holds}`,
        longest: 200,
      })),
      { name: 'unlimited', kind: 'check', label: 'No limit at all', value: Boolean(state?.override?.unlimited) },
      { name: 'number', kind: 'number', label: 'For', value: '30', from: 0, required: true, narrow: true },
      { name: 'unit', kind: 'choice', label: 'Unit', options: units, value: '60', narrow: true },
      ...locked.fields,
      why,
    ],
    action: 'Override',
    run: (values) => {
      const body = { policy, key, for: Number(values.number) * Number(values.unit), reason: values.reason };
      if (values.unlimited) body.unlimited = true;
      else body.limits = Object.fromEntries(limits.map((limit, i) => [limit.name, values[`limit${i}`].trim()]));
      return withUnlock('override', body, values, `Overridden for ${duration(body.for)}, in this server only`, 'Nothing has changed');
    },
  });
}

/** reload reads the configuration anew. */
export function reload() {
  return ask({
    title: 'Reload',
    lines: ['The configuration is read anew. If it has a mistake, the one in force stays.'],
    fields: [why],
    action: 'Reload',
    run: ({ reason }) => change('reload', { key: '', reason }, 'Reloaded', 'Reloaded: nothing has changed'),
  });
}

async function change(action, body, done, nothing) {
  const answer = await api.post(`/v1/admin/${action}`, body);
  note([`${answer.changed ? done : nothing}.`, await still(action, body)].filter(Boolean).join(' '));
  return answer;
}

// still is what is in the way of a key after a change that was to let it in, if anything is.
async function still(action, { policy, key }) {
  if (policy === undefined || action === 'restore') return '';
  try {
    const now = await api.get('/v1/admin/key', { policy, key });
    return now.locked_for || refusedFor(now) > 1 ? sentence(now) : '';
  } catch {
    return ''; // the change is made
  }
}
