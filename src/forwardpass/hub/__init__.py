"""A model reference → files on this machine.

    settings   catalogue and cache, as the environment names them
    resolve    a path, alias, shape or Hugging Face id → `ModelFiles`, fetched where missing
    locate     the same without fetching: None where it is not here
    pull       a reference → the path of its file or folder, in one call
    open_remote, remote_files, HubFile
               files on the hub, listed or read range by range without a download

Nothing of huggingface_hub is imported before a request is made or its cache is looked into.
"""

from forwardpass.hub.cache import Cache, Settings, settings
from forwardpass.hub.catalogue import Catalogue, Entry, load_catalogue
from forwardpass.hub.progress import Progress, Silent, Transfer
from forwardpass.hub.references import HubId, Kind, ModelFiles, parse_hub_id
from forwardpass.hub.remote import HubFile, remote_files
from forwardpass.hub.resolver import locate, open_remote, pull, resolve

__all__ = [
    "Cache",
    "Catalogue",
    "Entry",
    "HubFile",
    "HubId",
    "Kind",
    "ModelFiles",
    "Progress",
    "Settings",
    "Silent",
    "Transfer",
    "load_catalogue",
    "locate",
    "open_remote",
    "parse_hub_id",
    "pull",
    "remote_files",
    "resolve",
    "settings",
]
