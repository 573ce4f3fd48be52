"""The first sentence of `plan check` is said once and in plain words."""

from pathlib import Path

from tests.e2e.command import plan

MAXTEXT = """
base_config: base.yml
model_name: llama2-7b
per_device_batch_size: 2
max_target_length: 4096
ici_tensor_parallelism: 2
ici_fsdp_parallelism: 4
"""


def test_what_is_not_judged_is_reported_once(tmp_path: Path):
    path = tmp_path / "c.yml"
    path.write_text(MAXTEXT)
    answer = plan("check", str(path), "--cluster", "1x8:h100-sxm", "--time-limit", "0.1")
    assert answer.code == 0
    first = " ".join(answer.out.split())
    assert first.lower().count("undecided") <= 2  # the sentence, and its row of the table
    assert "Undecided: undecided" not in first
