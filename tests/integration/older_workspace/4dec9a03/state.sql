BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0005');
CREATE TABLE decisions (
	number INTEGER NOT NULL, 
	project TEXT NOT NULL, 
	signal TEXT NOT NULL, 
	flow_run TEXT, 
	at FLOAT NOT NULL, 
	action TEXT NOT NULL, 
	until FLOAT, 
	content JSON NOT NULL, 
	PRIMARY KEY (number)
);
CREATE TABLE deliveries (
	loop_id TEXT NOT NULL, 
	project TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	runs JSON NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (loop_id)
);
INSERT INTO "deliveries" VALUES('tiny-20261127-150303-e006e782','tiny',171,'{"loop": "28a62ef2cbb34a5bb2751793c81feed4", "trial-0": "247aa19d113c4d1ca5b7600191eb00c4", "trial-1": "3023028aaefa492f8370593528f1d4e7", "trial-2": "9d20be51a9864d8eb0045977a18d6af6", "trial-3": "bfed337901724b78a0dae1792e6d5996", "trial-4": "9d4c9ec54f2b48b9a78a2a4cf961bbda", "trial-5": "ace199dac9b145638cf3ab040a8cf85d", "trial-6": "bff9a470f5514929a1bc5d7a4e999b9d", "trial-7": "0f91572be67c4c70aa46f4716dae253c", "trial-8": "eb3e2c72ab88485d828706588bcdbacf", "trial-9": "b2978c58f3594274916818afa627914a"}',1.79579190977742624282e+09);
CREATE TABLE events (
	number INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	project TEXT NOT NULL, 
	content JSON NOT NULL, 
	state TEXT NOT NULL, 
	is_open BOOLEAN NOT NULL, 
	sent FLOAT, 
	PRIMARY KEY (number), 
	UNIQUE (id)
);
INSERT INTO "events" VALUES(1,'01c0f8f8-b254-55fd-af0d-a5218da8a436','tiny','{"name": "loopline.loop.ended", "project": "tiny", "text": "loop tiny-20261127-150303-e006e782 ended: its model lost; the champion stays: Not promoted. First model, roc_auc 0.5: judged against the goal and the baseline alone. Refused by: baseline.; baseline: is not shown to beat the trivial baseline (share of the positive class, roc_auc 0.5): is the same (95 % interval of the gain 0 to 0)", "payload": {"loop_id": "tiny-20261127-150303-e006e782", "began": 1795791784.9978683, "ended": 1795791909.389919, "outcome": "kept", "trigger": "person", "device_seconds": 10.611, "reason": ""}, "labels": {"loopline.outcome": "kept", "loopline.trigger": "person"}, "at": 1795791909.4314733}','sent',0,1.7957919096337559223e+09);
INSERT INTO "events" VALUES(2,'f5e83dbc-a268-5430-a26a-5835d3d14f8b','tiny','{"name": "loopline.champion.moved", "project": "tiny", "text": "promote: the champion is version 1: the first model", "payload": {"number": 1, "at": 1795791952.4089098, "by": "lab:4187", "reason": "the first model", "action": "promote", "before": null, "after": "1", "loop_id": ""}, "labels": {}, "at": 1795791952.7802691}','sent',0,1.79579195290631270405e+09);
INSERT INTO "events" VALUES(3,'a625bfa2-4033-5597-a6fa-9384eed5e491','tiny','{"name": "loopline.champion.moved", "project": "tiny", "text": "promote: the champion from version 1 to 2: a better one", "payload": {"number": 2, "at": 1795792002.1374216, "by": "lab:5754", "reason": "a better one", "action": "promote", "before": "1", "after": "2", "loop_id": ""}, "labels": {}, "at": 1795792002.534048}','sent',0,1.79579200265343022352e+09);
CREATE TABLE leases (
	name TEXT NOT NULL, 
	holder JSON NOT NULL, 
	epoch INTEGER NOT NULL, 
	until FLOAT, 
	PRIMARY KEY (name)
);
INSERT INTO "leases" VALUES('loop:tiny','{"host": "lab", "pids": "0a0b0c0d/pid:[4026531836]", "pid": 30246, "started": "0a0b0c0d/6906992"}',1,NULL);
CREATE TABLE loops (
	loop_id TEXT NOT NULL, 
	project TEXT NOT NULL, 
	saved INTEGER, 
	state TEXT, 
	intent TEXT, 
	folder TEXT, 
	process JSON, 
	step TEXT, 
	flow_run TEXT, 
	"trigger" TEXT NOT NULL, 
	began FLOAT NOT NULL, 
	closed INTEGER, 
	ended FLOAT, 
	outcome TEXT, 
	device_seconds FLOAT NOT NULL, reason TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (loop_id)
);
INSERT INTO "loops" VALUES('tiny-20261127-150303-e006e782','tiny',2,'finished','cd1a3fa0d124e2fdd9a472a189f3762c6a21d8e991f6ad556d549516bfb90890','/srv/lab/projects/tiny','{"host": "lab", "pids": "0a0b0c0d/pid:[4026531836]", "pid": 30246, "started": "0a0b0c0d/6906992"}','','7916d920-9692-4bec-97e1-7554df40f424','person',1.79579178499786829949e+09,1,1.79579190938991904258e+09,'kept',10.611,'');
CREATE TABLE monitoring_reports (
	project TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	content JSON NOT NULL, 
	PRIMARY KEY (project)
);
CREATE TABLE outbox (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	project TEXT NOT NULL, 
	loop_id TEXT NOT NULL, 
	content JSON NOT NULL
);
CREATE TABLE runners (
	number INTEGER NOT NULL, 
	project TEXT NOT NULL, 
	flow_run TEXT, 
	process JSON NOT NULL, 
	since FLOAT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "runners" VALUES(2,'tiny','7916d920-9692-4bec-97e1-7554df40f424','{"host": "lab", "pids": "0a0b0c0d/pid:[4026531836]", "pid": 30246, "started": "0a0b0c0d/6906992"}',1.7957917848913753033e+09);
CREATE TABLE served_versions (
	server TEXT NOT NULL, 
	project TEXT NOT NULL, 
	version TEXT NOT NULL, 
	release TEXT NOT NULL, 
	answers BIGINT NOT NULL, 
	failed BIGINT NOT NULL, 
	slow BIGINT NOT NULL, 
	at FLOAT NOT NULL, trial TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (server, project, version)
);
CREATE TABLE servers (
	server TEXT NOT NULL, 
	project TEXT NOT NULL, 
	release JSON, 
	began FLOAT, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (server, project)
);
CREATE TABLE step_records (
	number INTEGER NOT NULL, 
	project TEXT NOT NULL, 
	step TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	content JSON NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "step_records" VALUES(10,'tiny','register','d0bb41f08cc3481154f29f5422b8da020a94fb1a2ce7d059dcd0204fd36d4a66','{"step": "register", "key": "d0bb41f08cc3481154f29f5422b8da020a94fb1a2ce7d059dcd0204fd36d4a66", "parts": {"spec:name": "tiny", "input:validate-prepared": "525c543b5331a4efc7de2f54aac1c14086200e321e278936844670db83e94570", "input:version": "8affd7864883bcd6b1a918ed7b3b9f18084e950cd7ae712cb1316fb429632cae", "input:search": "28770e895a96b151511f2ac06084c742d12b8d59f6d659528a1d511b6a303af0", "input:train": "14184959e81c1a70f85b145df0f8899f90843a255a023b07d14463c74b7e0de4", "input:export": "704caff22e178cd5fa3cdf7dae100297a7417fca1b57f187d7339c92d2abf50c", "input:judge": "b083ba5eec4baf2da195b60c7e61c5bb57eec1f243c5874772c21710bf0aac25", "result:version": "8affd7864883bcd6b1a918ed7b3b9f18084e950cd7ae712cb1316fb429632cae", "result:search": "b1484e5707a5dae7a0c90d2832f5caa3ca48dbaf10ed3e8a4121143ce8951dde", "result:train": "57c2fb4c5f5818f90b552ad19bf1a25eb36aa2440484fb839d5be4d2db122376", "result:export": "d94081e6d2b4947766d2456fb09e3957d0c755bba39e4bc8c7692fab00f88ab5", "result:judge": "10361f0e0718f040f88985582cf9ed52653243c7c2e6f3c5e9eda2529f9480d1"}, "outputs": {}, "digest": "342c728fd1c52f8b58fbd1ae8354ec39adcb2f0d6394b3f7fcf1c013547ac885", "result": {"version": "1", "model": "tiny", "key": "b2481aeb76ddd78e91e6ca63229cf1cb1d2898933470b84f6708fb277767d5b3", "run": "28a62ef2cbb34a5bb2751793c81feed4", "store": "own"}, "loop_id": "tiny-20261127-150303-e006e782", "finished": 1795791905.6854591, "seconds": 8.015, "snapshot": ""}');
CREATE TABLE store_sizes (
	store TEXT NOT NULL, 
	size BIGINT NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (store)
);
CREATE INDEX decisions_by_flow_run ON decisions (project, flow_run);
CREATE INDEX decisions_by_signal ON decisions (project, signal);
CREATE INDEX events_by_project ON events (is_open, project);
CREATE INDEX events_by_state ON events (state, number);
CREATE INDEX loops_by_end ON loops (project, closed);
CREATE INDEX loops_by_state ON loops (project, saved);
CREATE INDEX outbox_by_loop ON outbox (project, loop_id, number);
CREATE UNIQUE INDEX step_records_by_key ON step_records (project, step, "key");
CREATE INDEX step_records_by_number ON step_records (project, step, number);
CREATE INDEX served_versions_by_release ON served_versions (project, release, at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('outbox',171);
COMMIT;
