"""Small tools, requests that call for one of them, and requests that call for none.

A request names the values that it asks for where they are clear; what it leaves open is not named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What is said, the tool that it is about, and the arguments that are clear from it."""

    text: str
    tool: str
    values: Mapping[str, object] = field(default_factory=dict)


def text(**limits: object) -> Schema:
    return {"type": "string", **limits}


def whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def one_of(*values: object) -> Schema:
    return {"enum": list(values)}


def record(**properties: Schema) -> Schema:
    """An object with all of these names and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


NUMBER: Schema = {"type": "number"}
DAY = text(pattern=r"^\d{4}-\d{2}-\d{2}$")
CLOCK = text(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
CODE = text(pattern="^[A-Z]{3}$")

SHOPPING = record(
    items={
        "type": "array",
        "items": record(
            name=text(),
            quantity=NUMBER,
            unit=one_of("g", "kg", "ml", "l", "tsp", "tbsp", "piece", "bunch"),
        ),
    }
)
SHOPPING_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add_to_shopping_list",
        "description": "Adds items to the shopping list.",
        "strict": True,
        "parameters": SHOPPING,
    },
}

# name: (what it does, its arguments)
TOOLS: dict[str, tuple[str, Schema]] = {
    "get_weather": (
        "Tells the weather of a city.",
        record(city=text(maxLength=40), unit=one_of("celsius", "fahrenheit")),
    ),
    "set_timer": ("Starts a kitchen timer.", record(minutes=whole(1, 600))),
    "calculate": (
        "Works out one step of arithmetic.",
        record(left=NUMBER, operator=one_of("+", "-", "*", "/"), right=NUMBER),
    ),
    "send_email": (
        "Sends an e-mail.",
        record(to=text(pattern="^[a-z.]+@[a-z.]+$"), subject=text(minLength=1, maxLength=60)),
    ),
    "add_event": (
        "Enters an event into the calendar.",
        record(title=text(minLength=1, maxLength=40), day=DAY, start=CLOCK),
    ),
    "switch_light": (
        "Switches the light of a room.",
        record(room=one_of("kitchen", "bedroom", "hall", "garden"), on={"type": "boolean"}),
    ),
    "convert_currency": (
        "Converts an amount of money.",
        record(amount={"type": "number", "minimum": 0}, source=CODE, target=CODE),
    ),
    "translate": (
        "Translates a short text.",
        record(words=text(minLength=1, maxLength=60), language=one_of("fr", "de", "es", "it")),
    ),
    "play_music": (
        "Plays music of an artist.",
        record(artist=text(minLength=1, maxLength=40), shuffle={"type": "boolean"}),
    ),
    "set_heating": (
        "Sets the heating of a room, in degrees Celsius.",
        record(room=text(maxLength=20), degrees={"type": "number", "multipleOf": 0.5,
                                                 "minimum": 5, "maximum": 30}),
    ),
    "find_trains": (
        "Finds trains between two towns.",
        record(origin=text(maxLength=30), destination=text(maxLength=30), seats=whole(1, 9)),
    ),
    "book_table": (
        "Books a table in a restaurant.",
        record(people=whole(1, 20), time=CLOCK, outside={"type": "boolean"}),
    ),
    "roll_dice": ("Rolls dice.", record(count=whole(1, 10), sides=one_of(4, 6, 8, 10, 12, 20))),
    "draw_chart": (
        "Draws a chart of some numbers.",
        record(kind=one_of("bar", "line", "pie"),
               values={"type": "array", "items": NUMBER, "minItems": 1, "maxItems": 6}),
    ),
    "set_volume": ("Sets the volume of the speakers in per cent.", record(percent=whole(0, 100))),
    "water_plants": (
        "Opens the water for some beds of the garden.",
        record(beds={"type": "array", "items": whole(1, 8), "uniqueItems": True, "minItems": 1},
               litres=whole(1, 50)),
    ),
    "search_books": (
        "Searches the library.",
        record(author=text(maxLength=40), language=one_of("en", "fr", "de"),
               after={"type": ["integer", "null"]}),
    ),
    "mix_paint": (
        "Mixes paint of a colour.",
        record(colour=text(pattern="^#[0-9a-f]{6}$"), litres=one_of(0.5, 1, 2.5, 5)),
    ),
    "track_parcel": ("Says where a parcel is.", record(number=text(pattern="^[A-Z]{2}[0-9]{6}$"))),
    "move_robot": (
        "Moves the robot in the storehouse.",
        record(to={"type": "object", "properties": {"x": whole(0, 99), "y": whole(0, 99)},
                   "required": ["x", "y"], "additionalProperties": False},
               speed=one_of("slow", "normal", "fast")),
    ),
}  # fmt: skip


def tool(name: str) -> dict[str, Any]:
    """A tool as a request offers it."""
    about, parameters = TOOLS[name]
    function = {"name": name, "description": about, "strict": True, "parameters": parameters}
    return {"type": "function", "function": function}


REQUESTS = [
    Request("What's the weather like in Lisbon, in Celsius?", "get_weather",
            {"city": "Lisbon", "unit": "celsius"}),
    Request("Is it hot in Phoenix? I think in Fahrenheit.", "get_weather",
            {"city": "Phoenix", "unit": "fahrenheit"}),
    Request("Remind me in twelve minutes that the bread is done.", "set_timer", {"minutes": 12}),
    Request("Eggs! Six minutes please.", "set_timer", {"minutes": 6}),
    Request("What is 48 times 17?", "calculate", {"left": 48, "operator": "*", "right": 17}),
    Request("Divide 91.5 by 3.", "calculate", {"left": 91.5, "operator": "/", "right": 3}),
    Request("Write to ida@harbour.org that the boat is repaired.", "send_email",
            {"to": "ida@harbour.org"}),
    Request("Mail jon.berg@mill.net, subject Flour order.", "send_email",
            {"to": "jon.berg@mill.net", "subject": "Flour order"}),
    Request("Put the dentist on 2027-03-09 at 14:30.", "add_event",
            {"day": "2027-03-09", "start": "14:30"}),
    Request("Choir practice, 2026-12-01, quarter past seven in the evening.", "add_event",
            {"day": "2026-12-01", "start": "19:15"}),
    Request("It's dark in the kitchen, light please.", "switch_light",
            {"room": "kitchen", "on": True}),
    Request("Turn the garden light off.", "switch_light", {"room": "garden", "on": False}),
    Request("How much are 250 euros in Swiss francs?", "convert_currency",
            {"amount": 250, "source": "EUR", "target": "CHF"}),
    Request("Change 80 US dollars into yen.", "convert_currency",
            {"amount": 80, "source": "USD", "target": "JPY"}),
    Request("How do you say 'good morning' in Italian?", "translate", {"language": "it"}),
    Request("Translate 'the key is under the mat' into German.", "translate",
            {"words": "the key is under the mat", "language": "de"}),
    Request("Play Nina Simone, any order.", "play_music",
            {"artist": "Nina Simone", "shuffle": True}),
    Request("Put on some Bach, not shuffled.", "play_music", {"shuffle": False}),
    Request("Make the study 21.5 degrees.", "set_heating", {"room": "study", "degrees": 21.5}),
    Request("18 degrees in the bathroom, please.", "set_heating",
            {"room": "bathroom", "degrees": 18}),
    Request("Two seats from Graz to Linz.", "find_trains",
            {"origin": "Graz", "destination": "Linz", "seats": 2}),
    Request("I need a train from Leeds to York, just for me.", "find_trains",
            {"origin": "Leeds", "destination": "York", "seats": 1}),
    Request("A table for five at 19:45, on the terrace.", "book_table",
            {"people": 5, "time": "19:45", "outside": True}),
    Request("Lunch for two at noon, inside.", "book_table",
            {"people": 2, "time": "12:00", "outside": False}),
    Request("Roll three twenty-sided dice.", "roll_dice", {"count": 3, "sides": 20}),
    Request("Throw an ordinary die once.", "roll_dice", {"count": 1, "sides": 6}),
    Request("Show 3, 7 and 12 as a bar chart.", "draw_chart",
            {"kind": "bar", "values": [3, 7, 12]}),
    Request("A pie with the shares 60 and 40.", "draw_chart", {"kind": "pie", "values": [60, 40]}),
    Request("Volume to 35 percent.", "set_volume", {"percent": 35}),
    Request("Mute the speakers.", "set_volume", {"percent": 0}),
    Request("Water beds 2, 5 and 7 with ten litres.", "water_plants",
            {"beds": [2, 5, 7], "litres": 10}),
    Request("Give bed 1 fifteen litres.", "water_plants", {"beds": [1], "litres": 15}),
    Request("French books by Colette after 1920.", "search_books",
            {"author": "Colette", "language": "fr", "after": 1920}),
    Request("Anything in English by Ursula Le Guin, any year.", "search_books",
            {"language": "en", "after": None}),
    Request("One litre of pure red, #ff0000.", "mix_paint", {"colour": "#ff0000", "litres": 1}),
    Request("I need 2.5 litres of white paint.", "mix_paint",
            {"colour": "#ffffff", "litres": 2.5}),
    Request("Where is my parcel QX204816?", "track_parcel", {"number": "QX204816"}),
    Request("Has BL000731 arrived?", "track_parcel", {"number": "BL000731"}),
    Request("Drive slowly to x 14, y 60.", "move_robot",
            {"to": {"x": 14, "y": 60}, "speed": "slow"}),
    Request("Robot to position (3, 88), as fast as you can.", "move_robot",
            {"to": {"x": 3, "y": 88}, "speed": "fast"}),
]  # fmt: skip

# Nothing of what the tools do is asked for.
NO_TOOL = [
    "Say hello.",
    "What colour is the sky on a clear day?",
    "Name three rivers of Europe.",
    "Give me a word that rhymes with tree.",
    "Who wrote Hamlet?",
    "Thank you, that was all.",
    "Is a whale a fish?",
    "Write one line about the sea.",
    "What does HTML stand for?",
    "How many legs has a spider?",
    "What is the opposite of cold?",
    "Tell me a short joke.",
    "Show me an empty JSON object.",
    "Write a loop in Python that counts to 3.",
    "Which tags open and close a paragraph in HTML?",
    "Which month comes after May?",
    "Spell the word rhythm.",
    "What is a noun?",
    "Good night!",
    "Explain in a few words what a tool is.",
]
