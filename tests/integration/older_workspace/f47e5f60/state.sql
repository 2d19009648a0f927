BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0006');
CREATE TABLE champion_moves (
	project TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	actor TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	action TEXT NOT NULL, 
	"before" TEXT, 
	"after" TEXT, 
	"plan" JSON NOT NULL, 
	promotion TEXT NOT NULL, 
	best TEXT, 
	loop_id TEXT NOT NULL, 
	PRIMARY KEY (project, number), 
	UNIQUE (id)
);
INSERT INTO "champion_moves" VALUES('tiny',1,'74eaf6d4893847c284a53b2726debeac',1.79586586918305015562e+09,'root@lab','the first model','promote',NULL,'1','{"canary": null, "shadow": null}','38ddd36005df','','');
INSERT INTO "champion_moves" VALUES('tiny',2,'02af661cafb345a491f9f36f328925f8',1.79586587659955239293e+09,'root@lab','a better one','promote','1','2','{"canary": null, "shadow": null}','3764331b20c5','','');
INSERT INTO "champion_moves" VALUES('tiny',3,'6f83152717fd4c67bf21c9ee60e0d389',1.79586588377978539467e+09,'root@lab','a person asked','canary','2','2','{"canary": {"version": "3", "share": 0.1, "until": null, "trial": "4f9997fcf6e0"}, "shadow": null}','3764331b20c5','','');
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
INSERT INTO "deliveries" VALUES('tiny-20261128-113551-44be8f8f','tiny',78,'{"loop": "cf15ffa1ec4946df9b66507c0e369035"}',1.79586579396366310124e+09);
INSERT INTO "deliveries" VALUES('tiny-20261128-113647-61dd2947','tiny',140,'{"loop": "f06f0202ec1d426ca56fa839c3c3b8b1"}',1.79586583454615259175e+09);
INSERT INTO "deliveries" VALUES('tiny-20261128-113725-2f3630a8','tiny',201,'{"loop": "aef68a4139f34f598ab3185f1dc76fed"}',1.79586586415376830106e+09);
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
INSERT INTO "events" VALUES(1,'6ec42223-e382-5801-8eb8-ac9325292d54','tiny','{"name": "loopline.loop.ended", "project": "tiny", "text": "loop tiny-20261128-113551-44be8f8f ended: its model lost; there is no champion yet: Not promoted. First model, roc_auc 0.2976: judged against the goal and the baseline alone. Refused by: baseline.; baseline: is not shown to beat the trivial baseline (share of the positive class, roc_auc 0.5): is worse by 0.2024 (95 % interval of the gain \u22120.437 to +0.0662)", "payload": {"loop_id": "tiny-20261128-113551-44be8f8f", "began": 1795865751.916495, "ended": 1795865793.785773, "outcome": "kept", "trigger": "person", "device_seconds": 0.12, "reason": ""}, "labels": {"loopline.outcome": "kept", "loopline.trigger": "person"}, "at": 1795865793.79437}','sent',0,1.79586579387079977991e+09);
INSERT INTO "events" VALUES(2,'c1ef5eaa-28f8-57ac-8490-a28af06346f2','tiny','{"name": "loopline.loop.ended", "project": "tiny", "text": "loop tiny-20261128-113647-61dd2947 ended: its model lost; there is no champion yet: Not promoted. First model, roc_auc 0.2976: judged against the goal and the baseline alone. Refused by: baseline.; baseline: is not shown to beat the trivial baseline (share of the positive class, roc_auc 0.5): is worse by 0.2024 (95 % interval of the gain \u22120.436 to +0.0757)", "payload": {"loop_id": "tiny-20261128-113647-61dd2947", "began": 1795865811.9081361, "ended": 1795865834.396262, "outcome": "kept", "trigger": "person", "device_seconds": 0.113, "reason": ""}, "labels": {"loopline.outcome": "kept", "loopline.trigger": "person"}, "at": 1795865834.4107192}','sent',0,1.79586583445512676243e+09);
INSERT INTO "events" VALUES(3,'27da05f2-cc2b-597b-a7d1-4ecfdfbe676a','tiny','{"name": "loopline.loop.ended", "project": "tiny", "text": "loop tiny-20261128-113725-2f3630a8 ended: its model lost; there is no champion yet: Not promoted. First model, roc_auc 0.2857: judged against the goal and the baseline alone. Refused by: baseline.; baseline: is not shown to beat the trivial baseline (share of the positive class, roc_auc 0.5): is worse by 0.2143 (95 % interval of the gain \u22120.448 to +0.0957)", "payload": {"loop_id": "tiny-20261128-113725-2f3630a8", "began": 1795865848.881386, "ended": 1795865863.9369411, "outcome": "kept", "trigger": "person", "device_seconds": 0.108, "reason": ""}, "labels": {"loopline.outcome": "kept", "loopline.trigger": "person"}, "at": 1795865863.945732}','sent',0,1.79586586398501634595e+09);
INSERT INTO "events" VALUES(4,'a7f2d730-33c7-5fd8-9615-96b17ba5dd38','tiny','{"name": "loopline.champion.moved", "project": "tiny", "text": "promote: the champion is version 1: the first model", "payload": {"number": 1, "at": 1795865869.1830502, "by": "root@lab", "reason": "the first model", "id": "74eaf6d4893847c284a53b2726debeac", "action": "promote", "before": null, "after": "1", "plan": {"canary": null, "shadow": null}, "promotion": "38ddd36005df", "best": "", "loop_id": ""}, "labels": {}, "at": 1795865869.1830502}','sent',0,1.79586586941199374193e+09);
INSERT INTO "events" VALUES(5,'386afe7f-a8cb-5977-a59a-1ef4d94f9e2f','tiny','{"name": "loopline.champion.moved", "project": "tiny", "text": "promote: the champion is version 2 (before: version 1): a better one", "payload": {"number": 2, "at": 1795865876.5995524, "by": "root@lab", "reason": "a better one", "id": "02af661cafb345a491f9f36f328925f8", "action": "promote", "before": "1", "after": "2", "plan": {"canary": null, "shadow": null}, "promotion": "3764331b20c5", "best": "", "loop_id": ""}, "labels": {}, "at": 1795865876.5995524}','sent',0,1.7958658768776583672e+09);
INSERT INTO "events" VALUES(6,'4e1d3263-3eea-5dce-af63-17d4b395f17f','tiny','{"name": "loopline.release.changed", "project": "tiny", "text": "canary: the champion stays version 2: a person asked", "payload": {"number": 3, "at": 1795865883.7797854, "by": "root@lab", "reason": "a person asked", "id": "6f83152717fd4c67bf21c9ee60e0d389", "action": "canary", "before": "2", "after": "2", "plan": {"canary": {"version": "3", "share": 0.1, "until": null, "trial": "4f9997fcf6e0"}, "shadow": null}, "promotion": "3764331b20c5", "best": "", "loop_id": ""}, "labels": {}, "at": 1795865883.7797854}','sent',0,1.79586588399724650377e+09);
CREATE TABLE leases (
	name TEXT NOT NULL, 
	holder JSON NOT NULL, 
	epoch INTEGER NOT NULL, 
	until FLOAT, 
	PRIMARY KEY (name)
);
INSERT INTO "leases" VALUES('loop:tiny','{"host": "lab", "pids": "0a0b0c0d/pid:[4026531836]", "pid": 857, "started": "0a0b0c0d/5257249"}',3,NULL);
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
INSERT INTO "loops" VALUES('tiny-20261128-113551-44be8f8f','tiny',2,'finished','046ffdcabd7ca2b6142139b1e4f574086d68634e5fdea4315e97abd8664379d4','/srv/lab/projects/tiny','{"host": "lab", "pids": "0a0b0c0d/pid:[4026531836]", "pid": 32097, "started": "0a0b0c0d/5246878"}','','cae7d089-d09e-4188-abb9-7d48c937578f','person',1.79586575191649508477e+09,1,1.79586579378577303883e+09,'kept',0.12,'');
INSERT INTO "loops" VALUES('tiny-20261128-113647-61dd2947','tiny',4,'finished','2efb157e01260044acd604beaabd64254fdc685134df323c0da87c432dc26aba','/srv/lab/projects/tiny','{"host": "lab", "pids": "0a0b0c0d/pid:[4026531836]", "pid": 446, "started": "0a0b0c0d/5253506"}','','d349f873-0dd4-4ab8-925d-b7672bc9142c','person',1.79586581190813612939e+09,2,1.79586583439626193046e+09,'kept',0.113,'');
INSERT INTO "loops" VALUES('tiny-20261128-113725-2f3630a8','tiny',6,'finished','b892a4dd208eede0e20c73e0d6a39989e56840c3b5e8e4c6860a521bb3560afc','/srv/lab/projects/tiny','{"host": "lab", "pids": "0a0b0c0d/pid:[4026531836]", "pid": 857, "started": "0a0b0c0d/5257249"}','','1b27d911-91d7-4788-bf65-f83ce47b4eb9','person',1.79586584888138604161e+09,3,1.79586586393694114683e+09,'kept',0.108,'');
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
CREATE TABLE registered_models (
	project TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	challenger TEXT, 
	number INTEGER NOT NULL, 
	alias TEXT, 
	mark TEXT NOT NULL, 
	intents JSON NOT NULL, 
	looked FLOAT, 
	trouble TEXT NOT NULL, 
	PRIMARY KEY (project)
);
INSERT INTO "registered_models" VALUES('tiny','fd84acf2f80745c4a5192e039818b248','3',3,'2','3:6f83152717fd4c67bf21c9ee60e0d389','[]',1.79586588394736862178e+09,'');
CREATE TABLE runners (
	number INTEGER NOT NULL, 
	project TEXT NOT NULL, 
	flow_run TEXT, 
	process JSON NOT NULL, 
	since FLOAT NOT NULL, 
	PRIMARY KEY (number)
);
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
INSERT INTO "step_records" VALUES(10,'tiny','register','38419ede0d627397bd506b0414dd6872fcf2bd8d594790e71024855d68eed1b9','{"step": "register", "key": "38419ede0d627397bd506b0414dd6872fcf2bd8d594790e71024855d68eed1b9", "parts": {"spec:name": "tiny", "input:validate-prepared": "d66c9f64c7a516d65aa13e34751d319544b92f79b1372a2769a2ea140cfa53ab", "input:version": "d03d7fcf94c68b7069ed05235b2e429994a8f6191c06af409174667999db7d24", "input:search": "7aca3506d455c56414f0c56a30649a5967b413be30cc58327d3fea16cdebe6dd", "input:train": "2540d083569c8323ba74836c7923c38f7168b8bf385db2fd529f7ff21c22accd", "input:export": "89560678e18b4797a3b67887c470a02cf01f28df545b56da1eaf3b4eaa7ccb06", "input:judge": "da935aa7ecc9f2906fa69268e6f919d10248e228c119ba70940df9449e71f8c8", "result:version": "d03d7fcf94c68b7069ed05235b2e429994a8f6191c06af409174667999db7d24", "result:search": "be314f0233aa5393d83526580b56efa7e3da8dd4d938ecbef063b5d13178c1e9", "result:train": "a945872146b1d236216f8a52243d552a057bf3a0c9f4c60e41cad6acbd834c69", "result:export": "91e4aa5e13b75d658ce8f08034f0c80ae88e84d863e5d2efea3fa9fb5c9d85ba", "result:judge": "f1048c3a305d3e33096573f5d9b566f8232e83025477bbf247347255ca490ccb"}, "outputs": {}, "digest": "1b794d2a9a00e874436fa109c3c25356f73e73deeb11d770abb89c83f3ae3818", "result": {"version": "1", "model": "tiny", "key": "6a16b5f8139a11aa55c3d70b6c4eb864b50f9271eede6be03424b76f84a3740e", "run": "cf15ffa1ec4946df9b66507c0e369035", "store": "own"}, "loop_id": "tiny-20261128-113551-44be8f8f", "finished": 1795865791.5408695, "seconds": 3.398, "snapshot": ""}');
INSERT INTO "step_records" VALUES(17,'tiny','register','433856e63fd3a3c673c6dccb20f57090b8ebfaaa067571a83b6302321b8f65bd','{"step": "register", "key": "433856e63fd3a3c673c6dccb20f57090b8ebfaaa067571a83b6302321b8f65bd", "parts": {"spec:name": "tiny", "input:validate-prepared": "d66c9f64c7a516d65aa13e34751d319544b92f79b1372a2769a2ea140cfa53ab", "input:version": "d03d7fcf94c68b7069ed05235b2e429994a8f6191c06af409174667999db7d24", "input:search": "7aca3506d455c56414f0c56a30649a5967b413be30cc58327d3fea16cdebe6dd", "input:train": "de3fe3342c186e80ae3db7d0941695e1636412945f434d7da60c160615fce3fa", "input:export": "c210cc9a56d2f069d320370b2d1726170f33ab66dc50d987ab67e136c196a4e8", "input:judge": "d81e7c5350fdb38411b79c033511c1183a0cc7729a035c74aabd72e89c963330", "result:version": "d03d7fcf94c68b7069ed05235b2e429994a8f6191c06af409174667999db7d24", "result:search": "be314f0233aa5393d83526580b56efa7e3da8dd4d938ecbef063b5d13178c1e9", "result:train": "7cb59946316bb7dd28cde437a5eff21de492be1a022b3e87d91ac568b15ce8c2", "result:export": "c53821d86bb51f3826d9f539a73967d2b718aa59fdc31b224e5447bc5ff15fa0", "result:judge": "6b9b183307b68c646cb9123f3426871f1c51723ee17406170ef7e9d01bb372cf"}, "outputs": {}, "digest": "6ad3e46568e7362bba9b06d74fc4a44245f0be18d1ce1bf46e16b64e4694e1eb", "result": {"version": "2", "model": "tiny", "key": "b304c3f7578f1cd398c124efcc5008ade64d41cbf734d7e7b27c0cd60932a8dd", "run": "f06f0202ec1d426ca56fa839c3c3b8b1", "store": "own"}, "loop_id": "tiny-20261128-113647-61dd2947", "finished": 1795865832.9010258, "seconds": 3.105, "snapshot": ""}');
INSERT INTO "step_records" VALUES(24,'tiny','register','656d78c5f144ab288abbad5188365b13c654f7ab248c0f70b230ef7f373e189c','{"step": "register", "key": "656d78c5f144ab288abbad5188365b13c654f7ab248c0f70b230ef7f373e189c", "parts": {"spec:name": "tiny", "input:validate-prepared": "d66c9f64c7a516d65aa13e34751d319544b92f79b1372a2769a2ea140cfa53ab", "input:version": "d03d7fcf94c68b7069ed05235b2e429994a8f6191c06af409174667999db7d24", "input:search": "7aca3506d455c56414f0c56a30649a5967b413be30cc58327d3fea16cdebe6dd", "input:train": "16e104fbbe3c7fda5274026ec20f3c6f0b9d9796ee839a7f201cd45822f51b48", "input:export": "d5e524a9e24cfeebebbd6fd7056b395545185e1425c5921e0b17db597762e81a", "input:judge": "75d77df777dd90a203ab29f09e7de4d8cff0cca1ac5a6e356095b45047074c59", "result:version": "d03d7fcf94c68b7069ed05235b2e429994a8f6191c06af409174667999db7d24", "result:search": "be314f0233aa5393d83526580b56efa7e3da8dd4d938ecbef063b5d13178c1e9", "result:train": "3488a04419c06f0ba02669730bcc7481ce0f5bdac65b8d54a5b611c6df50d362", "result:export": "e9bbe44ae3ced5b580a2b6db02c7fb7b998d710907069cf31e919af3727ec469", "result:judge": "b5ed65e1d4ee3a1dec37b3bea23930f76227bcd9d50d190ac87d73a6835f233e"}, "outputs": {}, "digest": "1fdd7771732be7cc54029f781181b5d3e5a5ad13d7c09e8559d3f3ae4c1f8a54", "result": {"version": "3", "model": "tiny", "key": "0288abf163fe3cbd1b12de36b4a317f62567b015fc07520b6227519cbebbe0ed", "run": "aef68a4139f34f598ab3185f1dc76fed", "store": "own"}, "loop_id": "tiny-20261128-113725-2f3630a8", "finished": 1795865862.7889519, "seconds": 2.223, "snapshot": ""}');
CREATE TABLE store_sizes (
	store TEXT NOT NULL, 
	size BIGINT NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (store)
);
CREATE TABLE versions (
	project TEXT NOT NULL, 
	version TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	run TEXT NOT NULL, 
	place TEXT NOT NULL, 
	tags JSON NOT NULL, 
	at FLOAT NOT NULL, 
	is_removed BOOLEAN NOT NULL, 
	PRIMARY KEY (project, version)
);
INSERT INTO "versions" VALUES('tiny','1','6a16b5f8139a11aa55c3d70b6c4eb864b50f9271eede6be03424b76f84a3740e','cf15ffa1ec4946df9b66507c0e369035','mlflow/artifacts/tiny/models/m-a5ab58d25aff495185c729e38d459893/artifacts','{"loopline.cost.device_seconds": "0.120051", "loopline.cost.peak_memory_mb": "380.457", "loopline.loop_id": "tiny-20261128-113551-44be8f8f", "loopline.dataset": "854d4ddfd4363b5a01ba17651302ba05.dir", "loopline.raw": "57426cc8847e9dfe2bb9baa5aa0ab907.dir", "loopline.target": "y", "loopline.spec": "046ffdcabd7ca2b6142139b1e4f574086d68634e5fdea4315e97abd8664379d4", "loopline.code": "not in git", "loopline.lock": "6a3066abe2278a0c5e24fd61edb1b725b2fe293ff6021e945921fbdaeaca3656", "loopline.study": "", "loopline.params": "{\"model.net\": \"trees\", \"model.rounds\": 1000, \"model.learning_rate\": 0.05, \"model.num_leaves\": 31, \"model.min_data_in_leaf\": 20, \"model.lambda_l2\": 1.0, \"model.feature_fraction_bynode\": 0.5, \"model.extra_trees\": false}", "loopline.seed": "1", "loopline.world_size": "1", "loopline.weights_sha256": "5fc853c600ac060c5146ba552c09bd5cf21e6da004cee6a5ff261c2bb35589a1", "loopline.verdict": "keep: Not promoted. First model, roc_auc 0.2976: judged against the goal and the baseline alone. Refused by: baseline.", "loopline.metric": "roc_auc=0.297619", "loopline.rival": "", "loopline.judged_best": "", "loopline.best": "", "loopline.served": "fp32", "loopline.variants": "[]", "loopline.files": "{\"background.json\": \"feddd5bf6b7c5ecf1b03458e8558d034bd6976b62afc95f44b4ad7d49b93934e\", \"model.onnx\": \"3a221e6ed1042a69e20ff35866cc749e6ebb0a66778b61b6e2ced83f6e00f4d5\", \"monitoring-reference.json\": \"371891e74237d0ae7f06261a79c11815b4ff3d99afb5a84c968f98e29ad77af5\", \"preparation.json\": \"ae121c3a2a8796aa50e23ce4af749756595da5fefbafddb7820f7dd92c1672ed\", \"reference.json\": \"0f02642eced0e86aa3e6a738cc96555c68bd3af538b411c8b4c7e8e55590951c\", \"verdict.json\": \"97fb993995e5a7278289ea44ccffe37a9fba22f90fb4f2ba5d11316cdee72636\", \"known_rows.npy\": \"72f91557260c3caebfed961b1179aac24885c349141700ead3ffe57b1d38b597\", \"predictions.npz\": \"c14aaf64b0bbaf9c06df2ec690b92c228cab9dddd513cd907fc5b45d0f7d6ee9\", \"worst.json\": \"827216cd7f69e56de35b5b324d88d5a93a4d70f8a10430bd4f4e606d671e1a8f\", \"job.json\": \"9365912fe1a72352e127fa03b789c8c334d6fc1e7e0a985fec1668b9bd3a753a\", \"trees.txt\": \"5fc853c600ac060c5146ba552c09bd5cf21e6da004cee6a5ff261c2bb35589a1\", \"spec.json\": \"62fb95770f7ce66ecb3aea60ddfdc62076f769f4591fbcf1f3249024b6935f60\"}", "loopline.key": "6a16b5f8139a11aa55c3d70b6c4eb864b50f9271eede6be03424b76f84a3740e"}',1795865791.087,0);
INSERT INTO "versions" VALUES('tiny','2','b304c3f7578f1cd398c124efcc5008ade64d41cbf734d7e7b27c0cd60932a8dd','f06f0202ec1d426ca56fa839c3c3b8b1','mlflow/artifacts/tiny/models/m-871b4325c6214b6bbcf3d2291c1af198/artifacts','{"loopline.cost.device_seconds": "0.113169", "loopline.cost.peak_memory_mb": "380.436", "loopline.loop_id": "tiny-20261128-113647-61dd2947", "loopline.dataset": "854d4ddfd4363b5a01ba17651302ba05.dir", "loopline.raw": "57426cc8847e9dfe2bb9baa5aa0ab907.dir", "loopline.target": "y", "loopline.spec": "2efb157e01260044acd604beaabd64254fdc685134df323c0da87c432dc26aba", "loopline.code": "not in git", "loopline.lock": "6a3066abe2278a0c5e24fd61edb1b725b2fe293ff6021e945921fbdaeaca3656", "loopline.study": "", "loopline.params": "{\"model.net\": \"trees\", \"model.rounds\": 1000, \"model.learning_rate\": 0.05, \"model.num_leaves\": 31, \"model.min_data_in_leaf\": 20, \"model.lambda_l2\": 1.0, \"model.feature_fraction_bynode\": 0.5, \"model.extra_trees\": false}", "loopline.seed": "2", "loopline.world_size": "1", "loopline.weights_sha256": "245b5a489de49baedfb6e83babc03455eb8ed49f22057b4f202601e6811de488", "loopline.verdict": "keep: Not promoted. First model, roc_auc 0.2976: judged against the goal and the baseline alone. Refused by: baseline.", "loopline.metric": "roc_auc=0.297619", "loopline.rival": "", "loopline.judged_best": "", "loopline.best": "", "loopline.served": "fp32", "loopline.variants": "[]", "loopline.files": "{\"background.json\": \"feddd5bf6b7c5ecf1b03458e8558d034bd6976b62afc95f44b4ad7d49b93934e\", \"model.onnx\": \"aea3a42a6852b1a74a089a44509e797d768e67b6148d7e9a92ca66b661c4fe8f\", \"monitoring-reference.json\": \"e807072a2fe493073df275a72ba300dd8b536ef1a04378c35e786792d181a852\", \"preparation.json\": \"ae121c3a2a8796aa50e23ce4af749756595da5fefbafddb7820f7dd92c1672ed\", \"reference.json\": \"0f02642eced0e86aa3e6a738cc96555c68bd3af538b411c8b4c7e8e55590951c\", \"verdict.json\": \"8e8d69a85023aed8e55f39448f61b5cf07c63dda3717ff9463712894181d2b67\", \"known_rows.npy\": \"72f91557260c3caebfed961b1179aac24885c349141700ead3ffe57b1d38b597\", \"predictions.npz\": \"776bfd8ea30686c9a3da2591df0fbc78c5d67957cc45395261bb752db9a2131e\", \"worst.json\": \"f81048cc346684920e1bf729c5ccb857215117c1772e7defa3204ffa14d3d27e\", \"job.json\": \"1578b8326f2e97c2db3e3cb9c43c52fb719d6efb14eef2dc4b7dd231823d599f\", \"trees.txt\": \"245b5a489de49baedfb6e83babc03455eb8ed49f22057b4f202601e6811de488\", \"spec.json\": \"41189aa4e67597dc44751dc22e1c53e27d76225574bc62781925b51226738ae9\"}", "loopline.key": "b304c3f7578f1cd398c124efcc5008ade64d41cbf734d7e7b27c0cd60932a8dd"}',1795865832.664,0);
INSERT INTO "versions" VALUES('tiny','3','0288abf163fe3cbd1b12de36b4a317f62567b015fc07520b6227519cbebbe0ed','aef68a4139f34f598ab3185f1dc76fed','mlflow/artifacts/tiny/models/m-2f92ad09c9bc4cf3a63da503f0c7427a/artifacts','{"loopline.cost.device_seconds": "0.108102", "loopline.cost.peak_memory_mb": "380.498", "loopline.loop_id": "tiny-20261128-113725-2f3630a8", "loopline.dataset": "854d4ddfd4363b5a01ba17651302ba05.dir", "loopline.raw": "57426cc8847e9dfe2bb9baa5aa0ab907.dir", "loopline.target": "y", "loopline.spec": "b892a4dd208eede0e20c73e0d6a39989e56840c3b5e8e4c6860a521bb3560afc", "loopline.code": "not in git", "loopline.lock": "6a3066abe2278a0c5e24fd61edb1b725b2fe293ff6021e945921fbdaeaca3656", "loopline.study": "", "loopline.params": "{\"model.net\": \"trees\", \"model.rounds\": 1000, \"model.learning_rate\": 0.05, \"model.num_leaves\": 31, \"model.min_data_in_leaf\": 20, \"model.lambda_l2\": 1.0, \"model.feature_fraction_bynode\": 0.5, \"model.extra_trees\": false}", "loopline.seed": "3", "loopline.world_size": "1", "loopline.weights_sha256": "31385c1566b8a9b3d212970aea7cd1c74b0a5a28826a03da79ee15a2b66ce257", "loopline.verdict": "keep: Not promoted. First model, roc_auc 0.2857: judged against the goal and the baseline alone. Refused by: baseline.", "loopline.metric": "roc_auc=0.285714", "loopline.rival": "", "loopline.judged_best": "", "loopline.best": "", "loopline.served": "fp32", "loopline.variants": "[]", "loopline.files": "{\"background.json\": \"feddd5bf6b7c5ecf1b03458e8558d034bd6976b62afc95f44b4ad7d49b93934e\", \"model.onnx\": \"4fce97fa06e4b36705678b790f775f40abf3d9b1eb8bba7ab3c0fb3b87db4305\", \"monitoring-reference.json\": \"bbcd039be418a9ba8699ff38e36dc1591b1aaf236d3d0c181394ce17ba6360a9\", \"preparation.json\": \"ae121c3a2a8796aa50e23ce4af749756595da5fefbafddb7820f7dd92c1672ed\", \"reference.json\": \"0f02642eced0e86aa3e6a738cc96555c68bd3af538b411c8b4c7e8e55590951c\", \"verdict.json\": \"78e8735ec40ce2be9a1ff00fa8ea68d37a8ae1f7216844f67c71be552254b06c\", \"known_rows.npy\": \"72f91557260c3caebfed961b1179aac24885c349141700ead3ffe57b1d38b597\", \"predictions.npz\": \"2c6c531343ddc9f73dd4efca660b1d743b63665613b8ce41b8738aba8fcf17d0\", \"worst.json\": \"b03268791e074588883c1c8409b9acd0fd0bd51bca09943f706e755675b4a4e4\", \"job.json\": \"1c8da0d9a2ab100dc64cc606e668ef9e57ca5ec01a52c129683624f64ec6cb6e\", \"trees.txt\": \"31385c1566b8a9b3d212970aea7cd1c74b0a5a28826a03da79ee15a2b66ce257\", \"spec.json\": \"e527d140a05182c6e420f99a4a340991f44eabebfc7abfb577aa3675eb47eafd\"}", "loopline.key": "0288abf163fe3cbd1b12de36b4a317f62567b015fc07520b6227519cbebbe0ed"}',1795865862.508,0);
CREATE TABLE workspace (
	id TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "workspace" VALUES('fd84acf2f80745c4a5192e039818b248');
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
CREATE INDEX versions_by_key ON versions (project, "key");
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('outbox',201);
COMMIT;
