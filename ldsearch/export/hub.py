"""Puts an exported folder on the Hugging Face Hub."""

from pathlib import Path
from typing import cast

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # lazily exported

from ldsearch.errors import ExportError, one_line

# Of httpx, or of its successor: whichever the Hub's library stands on.
_NETWORK_ERROR = cast(type[Exception], HfHubHTTPError.__bases__[0])


def check_name(name: str) -> None:
    """Refuse what can be no repository's name, before anything is done.

    Raises:
        ExportError: If it is none.
    """
    try:
        validate_repo_id(name)
    except ValueError as error:
        raise ExportError(f"--push-to-hub {name}: {one_line(error)}") from error


def push(folder: Path, name: str) -> str:
    """Upload a folder as a model repository, made if it is not there; returns its address.

    The token is the one that ``hf auth login`` or ``HF_TOKEN`` left.

    Raises:
        ExportError: If the Hub cannot be reached or refuses.
    """
    api = HfApi()
    try:
        address = api.create_repo(name, exist_ok=True)
        api.upload_folder(repo_id=address.repo_id, folder_path=folder, commit_message="Export of ldsearch")
    except (OSError, _NETWORK_ERROR, ValueError) as error:
        raise ExportError(
            f"{folder} is written, but could not be pushed to {name}: {one_line(error)}"
        ) from error
    return str(address)
