"""Files and models that a launch names, looked for around it."""

from trainplan.cli.values.launches import model_next_to, text_next_to


def test_a_file_is_looked_for_in_the_folders_above_up_to_the_repository(tmp_path, monkeypatch):
    scripts = tmp_path / "repository" / "a" / "scripts"
    scripts.mkdir(parents=True)
    monkeypatch.chdir(scripts)
    (tmp_path / "repository" / ".git").mkdir()
    (tmp_path / "repository" / "ds.json").write_text("{}")
    (tmp_path / "outside.json").write_text("{}")
    assert text_next_to(scripts, "ds.json") == text_next_to(scripts, "./ds.json") == "{}"
    assert text_next_to(scripts, "outside.json") is None
    assert text_next_to(scripts, "../../../ds.json") is None


def test_a_model_is_a_preset_under_any_of_its_names_or_a_folder(tmp_path):
    assert model_next_to(tmp_path, "meta-llama/Llama-3.1-8B-Instruct").name == "llama3.1-8b"
    assert model_next_to(tmp_path, "/weights/Meta-Llama-3-8B").name == "llama3-8b"
    assert model_next_to(tmp_path, "me/mine") is None
    folder = tmp_path / "mine"
    folder.mkdir()
    config = (
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256, '
        '"num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 512}'
    )
    (folder / "config.json").write_text(config)
    assert model_next_to(tmp_path, "./mine").num_hidden_layers == 2
    (folder / "config.json").write_text("{")
    assert model_next_to(tmp_path, "./mine") is None
