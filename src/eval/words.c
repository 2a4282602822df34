#include "eval/words.h"

const char *const heed_nouns[HEED_NOUNS] = {
    " apple",  " bridge",  " candle", " desert", " engine", " forest", " garden",  " hammer", " island",
    " jacket", " kitchen", " ladder", " marble", " needle", " ocean",  " pencil",  " queen",  " river",
    " silver", " table",   " uncle",  " valley", " window", " yellow", " anchor",  " basket", " castle",
    " doctor", " eagle",   " fabric", " glass",  " honey",  " ivory",  " jungle",  " kettle", " lemon",
    " mirror", " night",   " orange", " paper",  " quartz", " rabbit", " stone",   " tiger",  " umbrella",
    " violin", " water",   " zebra",  " arrow",  " bottle", " cotton", " dragon",  " earth",  " flower",
    " guitar", " horse",   " iron",   " jewel",  " knife",  " letter", " moon",    " nail",   " olive",
    " piano",  " rocket",  " snow",   " tower",  " velvet", " wolf",   " bread",   " coffee", " diamond",
    " egg",    " fire",    " ghost",  " hat",    " ink",    " judge",  " king",    " leaf",   " mouse",
    " nurse",  " oil",     " pilot",  " ring",   " salt",   " train",  " village", " wheel",  " button",
    " camel",  " dance",   " fish",   " gold",   " harbor", " milk"};

const char *const heed_places[HEED_PLACES] = {
    "Lisbon", "Paris",  "Cairo",    "Tokyo",   "Berlin",  "Madrid",  "Oslo",   "Rome",   "Vienna",  "Prague",
    "Dublin", "Athens", "Moscow",   "Delhi",   "Lima",    "Havana",  "Warsaw", "London", "Boston",  "Chicago",
    "Denver", "Dallas", "Sydney",   "Bombay",  "Geneva",  "Milan",   "Naples", "Quebec", "Toronto", "Kyoto",
    "Seoul",  "Zurich", "Florence", "Jakarta", "Nairobi", "Glasgow", "Venice", "Miami",  "Houston", "Munich"};

void heed_words_draw(heed_dice *dice, const char *const *list, int size, int count, const char **drawn)
{
    for (int i = 0; i < count; i++) {
        int same;
        do {
            drawn[i] = list[heed_dice_throw(dice, size)];
            same = 0;
            for (int j = 0; j < i; j++)
                same |= drawn[j] == drawn[i];
        } while (same);
    }
}
