"""A protocol that does nothing, whole: what the next protocol has to bring, and where each part stands.

The parties agree on a study, find the people whom they have in common, and exchange `study.ROUNDS` rounds of messages, in which
nothing stands but the round's number. No column is sent and nothing is learned: in the network of the release each category is as
likely as any other. A party is charged `study.EPSILON` before its first message leaves, so that the ledger, the limits and the
release have something to say.

- `study`: what studies of it are, and the event that they cause;
- `plan`, `run`, `rounds`: what a party does, and what it keeps;
- `release`: what a release of it states, and how that is checked;
- `register`: the lines in the product's registries. `__main__` runs ``verticil`` with them.
"""
