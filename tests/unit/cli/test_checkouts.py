"""`plan doctor` compares options with checkouts of runtimes that have one."""

from trainplan.cli.commands.runtime_doctor import runtime_finding
from trainplan.cli.options.names import CHECKOUTS, EXPORTERS


def test_a_program_that_is_written_has_no_checkout(tmp_path):
    assert set(EXPORTERS) - set(CHECKOUTS) == {"fsdp2", "transformers"}
    finding = runtime_finding(tmp_path)
    assert not finding.good
    assert "fsdp2" not in finding.detail
    assert all(name in finding.detail for name in CHECKOUTS)
