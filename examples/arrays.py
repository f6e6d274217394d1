"""Do my own arrays train, and what does the network say of new ones?"""

import numpy as np

import emuchain

rng = np.random.default_rng(7)
inputs = rng.normal(size=(400, 12)).astype(np.float32)
targets = (inputs[:, :4].sum(axis=1) > 0).astype(int)
network = {
    "name": "mine",
    "input": [12, 1, 1],
    "layers": [
        {"type": "fc", "features": 16},
        {"type": "relu"},
        {"type": "fc", "features": 2},
        {"type": "softmax"},
    ],
}
run = emuchain.train(
    network,
    (inputs, targets),
    devices=2,
    schedule="sync",
    epochs=30,
    batch=20,
    learning_rate=0.1,
    test_share=0.25,
)
logits = emuchain.predict(run, np.eye(12, dtype=np.float32)[[0, 3]] * 4)
print(f"right: {run.test_accuracy:.0%}; classes of two new samples: {logits.argmax(axis=1)}")

# Prints:
# right: 95%; classes of two new samples: [1 1]
