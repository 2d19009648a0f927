"""Stop on the page of a loop ends a loop of the command line as Ctrl-C does, and its page says who did."""

from __future__ import annotations

import pytest

from tasks.host.http_guard import token_path
from tasks.host.workspace import Workspace
from tests.fault.aftermath import running_trials
from tests.fault.conftest import SPEC, MakeHome
from tests.integration.test_page import Browser, serving

pytestmark = pytest.mark.fault


@pytest.mark.wide
def test_a_person_stops_a_loop_on_its_page(make_home: MakeHome) -> None:
    home = make_home("stopped", SPEC.replace("epochs: 4", "epochs: 4000"))
    workspace = Workspace(home.home)
    with serving(workspace) as port:
        page = Browser(port).log_in(token_path(workspace).read_text().strip())
        run = home.start("run", "stopped")
        try:
            run.wait_until(lambda: any(line["run"] == "trial-0" for line in home.outbox("stopped")))
            loop_id = home.book("stopped")["loop_id"]
            assert f'href="/loops/{loop_id}"' in page.get("/projects/stopped").text
            assert page.press("/projects/stopped/stop", reason="too slow").status == 200
            ended = run.ended()
        finally:
            run.process.kill()
        assert "Aborted!" in ended.err, "as by Ctrl-C"
        shown = page.get(f"/loops/{loop_id}").text
        assert "a person stopped it on its page" in shown
        assert "too slow" in shown
        assert "/projects/stopped/retry" in shown
        assert page.get("/projects/stopped/stop").status == 409
    assert home.book("stopped")["state"] == "cancelled"
    assert running_trials(home) == []
