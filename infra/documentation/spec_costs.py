"""What each key of a spec costs: time, memory or disk, in words for the page of the spec.

Figures without another source were measured on a machine with two cores, on 2026-11-25.
"""

from __future__ import annotations

COSTS = """
goal.metric: 1,000 resamples of 20,000 test rows take the verdict about 1 CPU-s; your own function is called for
  each of them.
data.source: A CSV of 1,000,000 rows and ten columns is read in 0.9 CPU-s. Its rows are stored as Parquet, raw and
  prepared.
data.source.sql: A million rows of twenty columns take 2 to 7 CPU-s and 170 to 280 MB, by the database.
data.source.at: One connection for each look, and one for a read.
data.source.cursor: A maximum and two counts on the server; only new rows are fetched.
data.source.overlap: Its rows are fetched again with each ingest that fetches some.
data.target: With several targets, trees train a booster for each; a net has an output more for each.
data.quantiles: Trees train a booster for each, at each horizon of a series; a net has an output more for each.
data.split.validation: Rows that choose the model. They are predicted once an epoch. Only trees and linear models learn
  from them afterwards.
data.split.equal_rows: A hash of each input column, and a sort.
data.split.test: Rows that train no model. The time of the verdict grows with them.
data.features.columns: Fewer columns make preparation, training and requests cheaper, in proportion.
data.features.drop: Saves what the columns would cost.
data.features.kinds: A text costs most: 4,000 to 14,000 short ones take 2 to 12 CPU-s to learn, and 4 to 15 MB of the
  model.
data.features.make: The time of your function over all rows, and again over up to 2,000, to see that each counts by
  itself.
data.features.fit: The time of your function over the training rows twice, and six times more if it reads the target.
data.features.transform: 7 CPU-s at preparation, to make a graph of your function.
data.features.max_categories: A row of a net's embedding, or a column of a linear model, for each category.
data.expectations: 0.15 CPU-s for a million rows each; a failed one runs twice. Great Expectations takes 2.6 CPU-s to
  start.
data.expectations.on: raw runs if the source changed, prepared if the preparation changed.
data.dates: Some 6 µs for each different text, when the source is read and when rows come.
data.decimal_commas: Some 1 µs for each different text, when the source is read and when rows come.
data.na_is_text: Two passes over each column of texts when a CSV is read.
data.deduplicate: A pass over all columns at preparation.
data.newest: Saves the training time of the rows left out.
data.unlabelled: The rows without a target are prepared and stored too.
data.show_rows: Nothing: the pages show less.
data.image.height: Time and memory of a net grow with height x width x channels.
data.image.resize: 2 CPU-ms for a JPEG of 640 x 480, 21 for one of 12 million pixels, when the source is read and for
  each that a server gets.
data.window.length: Time and memory of a net grow in proportion. Trees read the newest 96 steps only.
data.window.horizon: Trees train a booster for each horizon; seven take seven times as long. A net has an output more
  for each.
data.window.stride: A stride of 2 halves the training windows, and so the time of an epoch.
data.window.gaps: fill adds a row for each missing step.
data.window.known_future: An input for each column and horizon.
data.window.reference: auto and linear fit a linear map of the window once.
data.text.length: Memory grows in proportion; the time of attention with its square.
data.text.stride: Half the length gives twice the windows, and an epoch of twice the time.
model.net: auto took 10 to 38 CPU-s on 33 small data sets, all processes and the search included.
model.arguments: Time, memory and size grow with the number of layers, and with the square of their width.
search.trials: A training each, of `search.epochs` epochs.
search.sampler: Choosing the next trial takes 2 ms with tpe (six parameters, 60 trials), 150 ms with gp, under 1 ms
  with the others.
search.pruner: Saves the rest of trials that look bad.
search.on: A job of the cluster for each trial, with its waiting time.
search.workers: A process and its memory each. The cores are divided: more workers are faster on free cores only.
search.timeout_s: Saves the trials after it.
search.folds: k trainings for each trial.
search.epochs: The time of a trial grows in proportion.
search.sample: Half of the rows takes half of the time of a trial.
search.budget_s: The most that the search takes, in seconds of one reference core, and the rest of its last trial.
search.patience: Saves the trials after it.
search.families: A first trial for each family.
search.ensemble: true: at the end every member is trained, and an answer of the model costs as much as all of them.
search.bag: true: five fits of each family, at most about 7 CPU-s; a graph of five times the size. A net's
  export takes .1 CPU-s more for each fold.
train.epochs: The time grows in proportion.
train.epochs_per_pass: A validation for each epoch.
train.batch: Memory of activations grows in proportion. Small batches take more steps, and so more time.
train.optimiser: Memory in sizes of the weights: 1 for sgd, 2 for adamw. A step of an MLP with three layers of 256
  takes 2.3 CPU-ms with adamw, 2.1 with sgd, 5.7 with muon.
train.momentum: Memory of the weights once more, if it is above 0.
train.loss: The time of your function, once a batch.
train.patience: Saves the epochs after it.
train.rows: Time and memory of a fit grow in proportion.
train.refit: The fit of the chosen model takes 1.8 times the time, and memory for its rows once more.
train.augment: 2.5 CPU-ms for a batch of 256 images of 28 x 28.
train.augment.function: The time of your function, once a batch, and three times before the training.
train.ema: Memory of the weights once more, also in checkpoints; 1 % of the time of a step.
train.start.freeze: Saves gradients and optimiser state of these layers.
train.recent.share: The time grows in proportion.
train.recent.replay: The time grows with it.
train.pretrain: A training of its own before the training.
train.pretrain.epochs: The time of the pretraining grows in proportion.
train.pseudo_labels: A training of the teacher, then one of the student on more rows.
train.pseudo_labels.rounds: A further training for each round.
train.precision: On one H100 a decoder of 150 M trains 185 samples/s in fp32-exact, 608 in fp32, 1,067 in bf16.
train.on: The waiting time of the place.
train.ranks: A process each, with its memory. The cores are divided.
train.parallel: On a CPU with tiny nets fsdp and tp take 2 to 10 times as long a step as ddp. They save memory.
train.tensor: Messages in each layer, so ranks need fast links.
train.stages: Ranks wait at the begin and end of a batch; the more microbatches the less.
train.replicas: Memory of the whole net in each group.
train.pipeline: gpipe holds the activations of all microbatches, 1f1b of as many as stages.
train.microbatches: More of them wait less and make more messages.
train.accumulate: Saves memory of activations.
train.recompute: full takes about a third more time, a second pass forward; selective less. Both save memory.
train.compile: 20 to 30 s before the first step on a CPU; auto waits until it pays.
train.gradient_hook: fp16 saves half of the bytes of messages: on a link of 100 Mbit/s an epoch took .52 of the time.
train.shard_optimiser: Saves optimiser memory; messages after each step.
train.memory_mb: Memory of a rank that streams. Streaming takes about a sixth more CPU than mapped data.
train.threads: Cores.
train.max_restarts: Steps since the last checkpoint are trained again after each failure.
train.nodes: A machine each.
train.async_checkpoints: true: memory of a copy of the state; false: training waits for the disk. At most 3 % of the
  time.
train.keep_checkpoints: Disk: with adamw about four times the weights each (weights, two moments, the best weights).
judge.test: mcnemar needs no resamples.
judge.resamples: The time grows in proportion, 1 CPU-s for 1,000 of 20,000 rows; from there on closed forms take none.
judge.slices: A bootstrap of its own for each column.
serve.variants: At most 1.3 CPU-s of a loop for a table, 3 for pictures, 6 for a text; `[]` saves it.
serve.up: A server: 90 MB for a table model.
serve.canary: Both versions are in memory while it lasts.
serve.shadow: A process with the second version; it predicts every logged request again.
serve.log.share: About 17 us of a request, and disk: 30 bytes for a row of six columns.
monitor.schedule: 2 CPU-s a run with few predictions: some 200 a day every 15 minutes.
monitor.window: A window of 1e7 rows and 13 features takes 12 CPU-s.
monitor.keep_days: Saves disk.
retrain.schedule: A loop each time, which takes 2 CPU-s where nothing changed.
retrain.on: A loop for each signal that the policy lets through.
retrain.cooldown_s: Saves loops.
retrain.min_new_labels: Saves loops.
retrain.budget_device_s: Saves loops.
retrain.breaker: Saves loops that would fail.
retrain.search: again takes the time of the search in each loop; reuse saves it.
retrain.rows: Saves the time of the rows left out.
retrain.feedback: The log and the labels are read in each loop; the labelled rows are trained on too.
"""
"""What a key costs, by its path."""
NOTHING = """
goal.quantile goal.costs goal.costs.false_positive goal.costs.false_negative goal.positive goal.direction
goal.good_enough data.kind data.task data.split data.split.by data.split.column data.split.seed data.features
data.features.impute data.features.normalise data.expectations.expect data.expectations.arguments
data.expectations.severity data.target_scale data.id data.weight data.image data.image.column data.image.width
data.image.channels data.image.background data.window data.window.frequency data.window.series_key data.window.season
data.text data.text.column search.space search.space.low search.space.high search.space.log search.space.step
search.space.integer search.space.choices search.settings train.lr train.weight_decay train.nesterov train.schedule
train.cycles train.decay train.plateau_patience train.warmup train.clip_norm train.label_smoothing train.class_weights
train.augment.rotate_degrees train.augment.shift_pixels train.augment.brightness train.augment.flip
train.augment.erase train.augment.mixup_alpha train.augment.noise train.augment.swap train.start train.start.weights
train.start.lr_scale train.start.partial train.recent train.pretrain.mask train.pretrain.lr train.pretrain.patch
train.pseudo_labels.confidence train.nccl train.seed judge.mode judge.margin judge.unit judge.promotion judge.confidence
judge.min_samples judge.slice_margin judge.max_latency_ms judge.max_size_mb serve.max_latency_ms serve.max_metric_loss
serve.canary.share serve.canary.minutes serve.return_on serve.return_on.errors serve.return_on.latency_ms
serve.return_on.metric serve.log serve.log.redact serve.log.when_full monitor.alarms monitor.of monitor.alpha
monitor.psi monitor.psi_strong monitor.new_categories monitor.nulls monitor.margin monitor.confidence monitor.weights
monitor.min_labels monitor.seasonal monitor.accepted retrain.timezone retrain.breaker_s retrain.quiet
retrain.quiet.begin retrain.quiet.end retrain.ask retrain.ask_timeout_s retrain.start
"""
"""Keys that cost nothing worth a line."""


def costs() -> dict[str, str]:
    """Return what each key costs, by its path; empty for those that cost nothing."""
    found = dict.fromkeys(NOTHING.split(), "")
    path = ""
    for line in COSTS.strip().splitlines():
        if line.startswith("  "):
            found[path] += f" {line.strip()}"
        else:
            path, _, found[path] = line.partition(": ")
    return found
