import pytest

from services.config.folders import cache_root
from services.errors import BadConfig


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TANDEM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == tmp_path / ".cache" / "tandem"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == tmp_path / ".cache" / "tandem"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "tandem"
    monkeypatch.setenv("TANDEM_CACHE", "~/own")
    assert cache_root() == tmp_path / "own"


def test_a_user_without_a_home_has_to_name_a_folder(monkeypatch, tmp_path):
    for name in ("TANDEM_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(BadConfig, match="TANDEM_CACHE must name a folder"):
        cache_root()
    monkeypatch.setenv("TANDEM_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
